// SPDX-License-Identifier: Apache-2.0
//
// The two ways in which the planes wake each other without a system call per message.
//
// Both rest on one read-modify-write per side on one word: of the two, one comes second and, by
// reading what the first wrote, also sees everything that was done before it. So either the sleeper
// sees the message, or the sender sees the sleeper; a fence would do the same, but thread
// sanitizers do not understand fences.
//
// The words may lie in memory that another process can write: every value of them is harmless, at
// worst it costs a signal too many or, from a peer that lies, a wake-up.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/event_fd.h"

namespace tiercel {

// 0 is "no", everything else "yes".
using WakeWord = std::atomic<uint32_t>;
static_assert(WakeWord::is_always_lock_free, "words are shared between processes");

// Wakes one thread that sleeps in poll(2), but only if it sleeps. Each side has one, over the same
// word and the same eventfd (which may be two descriptors of it).
//
// Sleeper: prepare(); look once more for messages; if there are none, poll fd(); done().
// Sender:  send the message; wake().
class SleepFlag {
 public:
  // Both outlive this object.
  SleepFlag(WakeWord& sleeping, EventFd& event) : sleeping_(&sleeping), event_(&event) {}

  void prepare() { sleeping_->exchange(1, std::memory_order_acq_rel); }
  void done() {
    // Nobody signals from here on; a signal already given is taken back, one still on its way makes
    // the next sleep a short one.
    sleeping_->exchange(0, std::memory_order_acq_rel);
    event_->drain();
  }
  int fd() const { return event_->fd(); }

  void wake() {
    if (sleeping_->exchange(0, std::memory_order_acq_rel) != 0) event_->signal();
  }

 private:
  WakeWord* sleeping_;
  EventFd* event_;
};

// The sender's side of an announcement: says once, until the reader looks, that there is something.
class Announcer {
 public:
  // Both outlive this object.
  Announcer(WakeWord& announced, EventFd& event) : announced_(&announced), event_(&event) {}

  void announce() {
    if (announced_->exchange(1, std::memory_order_acq_rel) == 0) event_->signal();
  }

 private:
  WakeWord* announced_;
  EventFd* event_;
};

// Announces messages to one reader through a descriptor; any number of senders in this process.
//
// Sender: send the message; announce().
// Reader: acknowledge(); take the messages; announce() if some are left.
class Announcement {
 public:
  explicit Announcement(EventFd event) : event_(std::move(event)) {}

  // For a sender; valid as long as this object, which must not move meanwhile.
  Announcer announcer() { return Announcer(announced_, event_); }
  void announce() { announcer().announce(); }

  void acknowledge() {
    // Signals first: one that comes after the flag is down belongs to a message that may be missed
    // now.
    if (announced_.load(std::memory_order_relaxed) != 0 || signals_owed_ > 0) {
      signals_owed_ -= static_cast<int64_t>(event_.drain());
    }
    // Each time the flag goes up one signal follows, maybe after we looked; it is taken back later,
    // so that the descriptor does not stay readable for nothing.
    if (announced_.exchange(0, std::memory_order_acq_rel) != 0) ++signals_owed_;
  }

  int fd() const { return event_.fd(); }

 private:
  EventFd event_;
  WakeWord announced_{0};
  int64_t signals_owed_ = 0;  // reader's
};

}  // namespace tiercel
