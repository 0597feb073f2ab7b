// SPDX-License-Identifier: Apache-2.0
//
// StoreRequests: which operations each call into the store carries, until the store has completed
// it.
//
// Threads: one.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/store.h"
#include "tiercel/transfer.h"

namespace tiercel {

struct StoreRequest {
  StoreRequestId id;
  OpKind kind = OpKind::kStoreGet;
  TimePoint started;
  std::vector<BlockOp> ops;
};

// Ended requests are kept and used again, so that their lists need no new memory.
class StoreRequests {
 public:
  size_t size() const { return active_; }
  bool empty() const { return active_ == 0; }
  StoreRequest& operator[](size_t index) { return requests_[index]; }

  // A request with an empty list, which may be filled; it counts as in flight after commit().
  StoreRequest& draft() {
    if (active_ == requests_.size()) requests_.emplace_back();
    requests_[active_].ops.clear();
    return requests_[active_];
  }
  void commit() { ++active_; }

  // Null if no request in flight has this id.
  StoreRequest* find(StoreRequestId id) {
    for (size_t i = 0; i < active_; ++i) {
      if (requests_[i].id == id) return &requests_[i];
    }
    return nullptr;
  }

  // `request` is in flight; references to other requests may change their meaning.
  void end(StoreRequest& request) {
    --active_;
    if (&request != &requests_[active_]) std::swap(request, requests_[active_]);
  }

 private:
  std::vector<StoreRequest> requests_;  // the first active_ are in flight
  size_t active_ = 0;
};

}  // namespace tiercel
