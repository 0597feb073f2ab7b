// SPDX-License-Identifier: Apache-2.0
//
// The two ways in which the planes wake each other without a system call per message.
//
// Both rest on one read-modify-write per side on one atomic: of the two, one comes second and, by
// reading what the first wrote, also sees everything that was done before it. So either the sleeper
// sees the message, or the sender sees the sleeper; a fence would do the same, but thread
// sanitizers do not understand fences.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/event_fd.h"

namespace tiercel {

// Wakes one thread that sleeps in poll(2), but only if it sleeps.
//
// Sleeper: prepare(); look once more for messages; if there are none, poll fd(); done().
// Sender:  send the message; wake().
class SleepFlag {
 public:
  explicit SleepFlag(EventFd event) : event_(std::move(event)) {}

  void prepare() { sleeping_.exchange(true, std::memory_order_acq_rel); }
  void done() {
    // Nobody signals from here on; a signal already given is taken back, one still on its way makes
    // the next sleep a short one.
    sleeping_.exchange(false, std::memory_order_acq_rel);
    event_.drain();
  }
  int fd() const { return event_.fd(); }

  void wake() {
    if (sleeping_.exchange(false, std::memory_order_acq_rel)) event_.signal();
  }

 private:
  EventFd event_;
  std::atomic<bool> sleeping_{false};
};

// Announces messages to one reader through a descriptor, once until the reader looks; any number of
// senders.
//
// Sender: send the message; announce().
// Reader: acknowledge(); take the messages; announce() if some are left.
class Announcement {
 public:
  explicit Announcement(EventFd event) : event_(std::move(event)) {}

  void announce() {
    if (!announced_.exchange(true, std::memory_order_acq_rel)) event_.signal();
  }

  void acknowledge() {
    // Signals first: one that comes after the flag is down belongs to a message that may be missed
    // now.
    if (announced_.load(std::memory_order_relaxed) || signals_owed_ > 0) {
      signals_owed_ -= static_cast<int64_t>(event_.drain());
    }
    // Each time the flag goes up one signal follows, maybe after we looked; it is taken back later,
    // so that the descriptor does not stay readable for nothing.
    if (announced_.exchange(false, std::memory_order_acq_rel)) ++signals_owed_;
  }

  int fd() const { return event_.fd(); }

 private:
  EventFd event_;
  std::atomic<bool> announced_{false};
  int64_t signals_owed_ = 0;  // reader's
};

}  // namespace tiercel
