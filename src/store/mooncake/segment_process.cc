// SPDX-License-Identifier: Apache-2.0
#include "store/mooncake/segment_process.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <poll.h>

#include "base/memfd.h"
#include "base/memory_limit.h"
#include "base/quantity.h"

namespace tiercel {
namespace {

// Of the one memory that the process has.
constexpr size_t kSegment = 0;
// So that large pages fit.
constexpr uint64_t kUnitBytes = uint64_t{2} << 20;
// Left at the end of close() for the end of a process that is killed: it has gigabytes to unmap.
constexpr Duration kKillTime = std::chrono::seconds(1);

uint64_t rounded(uint64_t bytes) { return (bytes + kUnitBytes - 1) / kUnitBytes * kUnitBytes; }

}  // namespace

Result<std::unique_ptr<SegmentProcess>> SegmentProcess::create(const MooncakeOptions& options) {
  const uint64_t bytes = rounded(options.segment_bytes);
  const MemoryLimit limit = available_memory();
  if (bytes > limit.bytes) {
    return Error(Code::kNoSpace, "a segment of " + format_bytes(bytes) +
                                     " for the Mooncake pool is more than the " +
                                     format_bytes(limit.bytes) + " left of the " + limit.source +
                                     "; make it smaller (segment=), or leave it out");
  }
  TIERCEL_TRY_ASSIGN(FileDescriptor memfd, make_memfd("tiercel mooncake segment", bytes));
  TIERCEL_TRY_ASSIGN(std::unique_ptr<Sidecar> process,
                     Sidecar::create(options, Sidecar::Role::kSegment));
  TIERCEL_TRY(process->add_memory(memfd.get(), bytes, options.populate));
  std::unique_ptr<SegmentShare> share;
  if (!options.segment_socket.empty()) {
    TIERCEL_TRY_ASSIGN(share, SegmentShare::create(options.segment_socket, memfd.get(), bytes));
  }
  return std::unique_ptr<SegmentProcess>(
      new SegmentProcess(bytes, std::move(memfd), std::move(process), std::move(share)));
}

SegmentProcess::SegmentProcess(uint64_t bytes, FileDescriptor memfd,
                               std::unique_ptr<Sidecar> process,
                               std::unique_ptr<SegmentShare> share)
    : bytes_(bytes),
      memfd_(std::move(memfd)),
      process_(std::move(process)),
      share_(std::move(share)) {}

std::vector<int> SegmentProcess::fds() const {
  std::vector<int> fds{process_->fd()};
  if (share_ != nullptr) fds.push_back(share_->fd());
  return fds;
}

bool SegmentProcess::poll(TimePoint now) {
  process_->poll(now, &replies_);
  if (!replies_.empty()) process_->kill("the segment process has answered what it was not asked");
  replies_.clear();
  process_->start(now);
  mooncake::SegmentPlace place;
  if (process_->state() == Sidecar::State::kReady) {
    place = {process_->address(kSegment), process_->greeting()};
  }
  if (share_ != nullptr) share_->poll(place);
  if (place == place_) return false;
  place_ = std::move(place);
  return true;
}

TimePoint SegmentProcess::next_due() const {
  return process_->state() == Sidecar::State::kDown ? process_->retry_at() : process_->next_due();
}

std::string SegmentProcess::problem() const {
  const std::string what = "the segment of " + format_bytes(bytes_) + " is not in the pool: ";
  switch (process_->state()) {
    case Sidecar::State::kReady:
      return "";
    case Sidecar::State::kEnding:
      return what + "its process ends";
    case Sidecar::State::kStarting:
    case Sidecar::State::kDown:
      break;
  }
  if (process_->starts() == 0) return what + "its process has not been started yet";
  // A start that follows a failure will mostly fail in the same way.
  return what + (process_->problem().empty() ? process_->stage() : process_->problem());
}

Status SegmentProcess::close(const Clock& clock, Duration allowed) {
  const auto begun = std::chrono::steady_clock::now();
  process_->ask_to_end();
  share_.reset();
  place_ = {};
  while (process_->state() != Sidecar::State::kDown) {
    const Duration gone = std::chrono::steady_clock::now() - begun;
    if (gone >= allowed - std::min(kKillTime, allowed / 2)) process_->kill("closed");
    pollfd source{.fd = process_->fd(), .events = POLLIN, .revents = 0};
    constexpr int kLookMs = 20;
    ::poll(&source, 1, kLookMs);
    replies_.clear();
    process_->poll(clock.now(), &replies_);
    if (process_->state() == Sidecar::State::kDown || gone < allowed) continue;
    return Error(Code::kTimeout,
                 "the process of the Mooncake segment is killed and has not ended within " +
                     format_duration(allowed));
  }
  return {};
}

}  // namespace tiercel
