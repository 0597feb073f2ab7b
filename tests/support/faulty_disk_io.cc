// SPDX-License-Identifier: Apache-2.0
#include "support/faulty_disk_io.h"

#include <algorithm>
#include <utility>

#include <sys/epoll.h>

#include "base/assert.h"

namespace tiercel::testing {
namespace {

uint64_t bytes_of(const DiskFault& fault, const DiskIoRequest& request) {
  const uint64_t all = request.memory.size();
  if (fault.bytes) return std::min(*fault.bytes, all);
  const uint64_t half = all / 2;
  return request.file == DiskFile::kData ? half - half % kDiskAlignmentBytes : half;
}

int64_t success_of(const DiskIoRequest& request) {
  return request.kind == DiskIoKind::kSync ? 0 : static_cast<int64_t>(request.memory.size());
}

}  // namespace

FaultyDiskIo::FaultyDiskIo(std::unique_ptr<DiskIo> inner) : inner_(std::move(inner)) {
  if (inner_->completion_fd() < 0) return;
  own_event_ = EventFd::create().value();
  both_.reset(::epoll_create1(EPOLL_CLOEXEC));
  for (const int fd : {inner_->completion_fd(), own_event_->fd()}) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    TIERCEL_ASSERT(::epoll_ctl(both_.get(), EPOLL_CTL_ADD, fd, &event) == 0,
                   "a test has descriptors left");
  }
}

FaultyDiskIo::~FaultyDiskIo() = default;

void FaultyDiskIo::add(const DiskFault& fault) {
  TIERCEL_ASSERT(fault.first >= 1, "faults count requests from 1");
  faults_.push_back({.fault = fault});
}
void FaultyDiskIo::clear() { faults_.clear(); }

void FaultyDiskIo::release() {
  for (const DiskIoRequest& request : std::exchange(hanging_, {})) {
    hand_over(request, std::nullopt);
  }
  inner_->submit(batch_);
  batch_.clear();
}

size_t FaultyDiskIo::capacity() const {
  // What hangs and what a fault has answered take the room that they would take below.
  return inner_->capacity() - hanging_.size() - completed_.size();
}

void FaultyDiskIo::submit(std::span<const DiskIoRequest> requests) {
  TIERCEL_ASSERT(requests.size() <= capacity(), "no more is submitted than there is room for");
  for (const DiskIoRequest& request : requests) hand_over(request, strike(request));
  inner_->submit(batch_);
  batch_.clear();
}

std::optional<DiskFault> FaultyDiskIo::strike(const DiskIoRequest& request) {
  std::optional<DiskFault> strikes;
  for (Active& active : faults_) {
    const DiskFault& fault = active.fault;
    if (fault.kind.value_or(request.kind) != request.kind) continue;
    if (fault.file.value_or(request.file) != request.file) continue;
    const uint64_t number = ++active.seen;
    if (number >= fault.first && number - fault.first < fault.count && !strikes) strikes = fault;
  }
  if (strikes) ++struck_;
  return strikes;
}

void FaultyDiskIo::hand_over(const DiskIoRequest& request, std::optional<DiskFault> fault) {
  Below below{.request = request, .result = std::nullopt, .bit = std::nullopt};
  if (fault) {
    const uint64_t bytes = bytes_of(*fault, request);
    switch (fault->action) {
      case DiskFaultAction::kError:
        return complete(request.token, -int64_t{fault->error});
      case DiskFaultAction::kLost:
        if (request.kind != DiskIoKind::kRead) ++lied_;
        return complete(request.token, success_of(request));
      case DiskFaultAction::kHang:
        hanging_.push_back(request);
        return;
      case DiskFaultAction::kTornError:
        if (bytes == 0) return complete(request.token, -int64_t{fault->error});
        below.result = -int64_t{fault->error};
        below.request.memory = request.memory.first(bytes);
        break;
      case DiskFaultAction::kShort:
        if (bytes == 0) return complete(request.token, 0);
        below.request.memory = request.memory.first(bytes);
        break;
      case DiskFaultAction::kFlipBit:
        if (request.kind == DiskIoKind::kRead) below.bit = fault->bit;
        break;
    }
  }
  DiskIoRequest renamed = below.request;
  renamed.token = next_token_++;
  below_.emplace(renamed.token, below);
  batch_.push_back(renamed);
}

void FaultyDiskIo::complete(uint64_t token, int64_t result) {
  completed_.push_back({.token = token, .result = result});
  if (own_event_) own_event_->signal();
}

size_t FaultyDiskIo::poll(std::span<DiskIoCompletion> out) {
  size_t count = 0;
  while (count < out.size() && !completed_.empty()) {
    out[count++] = completed_.front();
    completed_.pop_front();
  }
  if (completed_.empty() && own_event_) own_event_->drain();
  const size_t own = count;
  count += inner_->poll(out.subspan(own));
  for (DiskIoCompletion& completion : out.subspan(own, count - own)) {
    const Below below = below_.extract(completion.token).mapped();
    if (below.bit && completion.result > 0) {
      const uint64_t bit = *below.bit % (static_cast<uint64_t>(completion.result) * 8);
      below.request.memory[bit / 8] ^= std::byte{1} << (bit % 8);
    }
    completion.token = below.request.token;
    if (below.result) completion.result = *below.result;
  }
  return count;
}

int FaultyDiskIo::completion_fd() const { return both_ ? both_.get() : -1; }

}  // namespace tiercel::testing
