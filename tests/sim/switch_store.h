// SPDX-License-Identifier: Apache-2.0
//
// SwitchStore: two handles of one store, a sound one and a faulty one; which of them takes the next
// submission is decided by a switch of the driver's.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "tiercel/store.h"

#include "failure.h"

namespace tiercel::sim {

struct SwitchState {
  bool faulty = false;
  uint64_t outstanding = 0;  // submissions of all handles that have not completed
  Coverage codes;            // items of the faulty handles by code
};

class SwitchStore final : public Store {
 public:
  // `state` outlives it.
  SwitchStore(std::unique_ptr<Store> sound, std::unique_ptr<Store> faulty, SwitchState& state)
      : handles_{std::move(sound), std::move(faulty)}, state_(state) {}
  // What it has not answered nobody waits for any more.
  ~SwitchStore() override { state_.outstanding -= outstanding_; }
  SwitchStore(const SwitchStore&) = delete;
  SwitchStore& operator=(const SwitchStore&) = delete;

  Result<StoreRequestId> submit_exists(std::span<const ObjectKey> keys,
                                       TimePoint deadline) override {
    return started(chosen().submit_exists(keys, deadline));
  }
  Result<StoreRequestId> submit_get(std::span<const StoreGetItem> items,
                                    TimePoint deadline) override {
    return started(chosen().submit_get(items, deadline));
  }
  Result<StoreRequestId> submit_put(std::span<const StorePutItem> items,
                                    TimePoint deadline) override {
    return started(chosen().submit_put(items, deadline));
  }
  Result<StoreRequestId> submit_remove(std::span<const ObjectKey> keys,
                                       TimePoint deadline) override {
    return started(chosen().submit_remove(keys, deadline));
  }
  Result<StoreRequestId> submit_clear(std::string_view prefix, TimePoint deadline) override {
    return started(chosen().submit_clear(prefix, deadline));
  }
  size_t poll(std::vector<StoreCompletion>* completions) override;
  int completion_fd() const override { return -1; }
  Status register_memory(std::span<std::byte> memory) override;
  StoreStats stats() const override { return handles_[0]->stats(); }
  Status close(TimePoint deadline) override;

 private:
  Store& chosen() { return *handles_[state_.faulty ? 1 : 0]; }
  Result<StoreRequestId> started(Result<StoreRequestId> id);

  const std::array<std::unique_ptr<Store>, 2> handles_;
  SwitchState& state_;
  uint64_t outstanding_ = 0;  // of this one
};

}  // namespace tiercel::sim
