// SPDX-License-Identifier: Apache-2.0
//
// DiskRequestQueue: requests on their way to a DiskIo, which takes only so many at once.
//
// Records, headers and syncs go before slots: whole batches of operations wait for them, and they
// are small.
//
// Threads: one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "tier/disk/disk_io.h"

namespace tiercel {

class DiskRequestQueue {
 public:
  // Allocates for so many; more is possible but costs an allocation.
  explicit DiskRequestQueue(size_t requests) {
    first_.reserve(requests);
    slots_.reserve(requests);
    batch_.reserve(requests);
  }

  void push(const DiskIoRequest& request) {
    const bool is_slot = request.file == DiskFile::kData && request.kind != DiskIoKind::kSync;
    (is_slot ? slots_ : first_).push_back(request);
  }

  // Submits what `io` has room for, in one call; these are the ones.
  std::span<const DiskIoRequest> hand_over(DiskIo& io) {
    batch_.clear();
    if (first_.empty() && slots_.empty()) return {};
    size_t room = io.capacity();
    for (std::vector<DiskIoRequest>* waiting : {&first_, &slots_}) {
      const auto end =
          waiting->begin() + static_cast<std::ptrdiff_t>(std::min(room, waiting->size()));
      room -= static_cast<size_t>(end - waiting->begin());
      batch_.insert(batch_.end(), waiting->begin(), end);
      waiting->erase(waiting->begin(), end);
    }
    if (!batch_.empty()) io.submit(batch_);
    return batch_;
  }

 private:
  std::vector<DiskIoRequest> first_;
  std::vector<DiskIoRequest> slots_;
  std::vector<DiskIoRequest> batch_;  // what was submitted last
};

}  // namespace tiercel
