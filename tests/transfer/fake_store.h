// SPDX-License-Identifier: Apache-2.0
//
// A store that does exactly what a test tells it to: completes at once or when told, in any order,
// partly, with any codes, or never. The test keeps a handle on what the store, which a worker owns,
// does.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tiercel/store.h"
#include "tiercel/transfer.h"

#include "base/event_fd.h"

namespace tiercel::testing {

struct FakeCall {
  OpKind kind = OpKind::kStoreGet;
  StoreRequestId id;
  TimePoint deadline;
  size_t items = 0;
};

// Threads: any; one lock around everything.
class FakeStoreState {
 private:
  template <typename F>
  auto with_lock(F&& body) {
    const std::lock_guard lock(mutex_);
    return body();
  }

 public:
  explicit FakeStoreState(bool with_fd) : with_fd_(with_fd), event_(EventFd::create().value()) {}

  // Settings.
  void hold(bool on) {
    with_lock([&] { hold_ = on; });
  }
  void be_busy(uint32_t times) {
    with_lock([&] { busy_ = times; });
  }
  void refuse_with(Code code) {
    with_lock([&] { refusal_ = code; });
  }
  // Changes the codes of each completion just before it is handed out.
  void rewrite_codes(std::function<void(std::vector<Code>&)> rewrite) {
    with_lock([&] { rewrite_ = std::move(rewrite); });
  }
  void set_words(std::string words) {
    with_lock([&] { words_ = std::move(words); });
  }
  std::string words() {
    return with_lock([&] { return words_; });
  }
  void set_health(const StoreHealth& health) {
    with_lock([&] { health_ = health; });
  }
  StoreHealth health() {
    return with_lock([&] { return health_; });
  }
  void hang_in_close(bool on) {
    with_lock([&] { hang_in_close_ = on; });
  }

  // Completes up to `count` held submissions, newest first if `reverse`.
  void release(size_t count, bool reverse = false) {
    with_lock([&] {
      for (; count > 0 && !held_.empty(); --count) {
        const size_t index = reverse ? held_.size() - 1 : 0;
        auto finish = std::move(held_[index]);
        held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(index));
        complete(finish());
      }
    });
  }
  // Completes a submission that there never was, or that has been completed before.
  void complete_stray(StoreRequestId id, std::vector<Code> codes) {
    with_lock([&] { complete({id, std::move(codes)}); });
  }

  std::vector<FakeCall> calls() {
    return with_lock([&] { return calls_; });
  }
  size_t held() {
    return with_lock([&] { return held_.size(); });
  }
  std::map<std::string, std::vector<std::byte>> objects() {
    return with_lock([&] { return objects_; });
  }
  void set_object(const std::string& key, std::vector<std::byte> bytes) {
    with_lock([&] { objects_[key] = std::move(bytes); });
  }
  std::vector<std::span<std::byte>> registered() {
    return with_lock([&] { return registered_; });
  }

 private:
  friend class FakeStore;
  using Finish = std::function<StoreCompletion()>;

  Result<StoreRequestId> accept(OpKind kind, size_t items, TimePoint deadline,
                                std::function<std::vector<Code>()> execute) {
    return with_lock([&]() -> Result<StoreRequestId> {
      if (closed_) return Error(Code::kUnavailable, "closed");
      if (refusal_ != Code::kOk) return Error(refusal_, "refused on request of the test");
      if (busy_ > 0) {
        --busy_;
        return Error(Code::kBusy, "busy on request of the test");
      }
      const StoreRequestId id(++last_id_);
      calls_.push_back({kind, id, deadline, items});
      Finish finish = [id, execute = std::move(execute)] { return StoreCompletion{id, execute()}; };
      if (hold_) {
        held_.push_back(std::move(finish));
      } else {
        complete(finish());
      }
      return id;
    });
  }

  void complete(StoreCompletion completion) {
    if (rewrite_) rewrite_(completion.codes);
    completed_.push_back(std::move(completion));
    if (with_fd_) event_.signal();
  }

  const bool with_fd_;
  std::mutex mutex_;
  EventFd event_;
  bool hold_ = false;
  StoreHealth health_;
  std::string words_ = "ok";
  bool hang_in_close_ = false;
  bool closed_ = false;
  uint32_t busy_ = 0;
  Code refusal_ = Code::kOk;
  std::function<void(std::vector<Code>&)> rewrite_;
  uint64_t last_id_ = 0;
  std::vector<FakeCall> calls_;
  std::vector<Finish> held_;
  std::vector<StoreCompletion> completed_;
  std::map<std::string, std::vector<std::byte>> objects_;
  std::vector<std::span<std::byte>> registered_;
};

class FakeStore final : public Store {
 public:
  // The state is shared: the test looks at it while the worker owns the store.
  explicit FakeStore(std::shared_ptr<FakeStoreState> state) : state_(std::move(state)) {}
  StoreHealth health() const override { return state_->health(); }
  std::string state() const override { return state_->words(); }

  Result<StoreRequestId> submit_exists(std::span<const ObjectKey> keys,
                                       TimePoint deadline) override {
    return state_->accept(OpKind::kStoreExists, keys.size(), deadline,
                          [state = state_.get(), keys = std::vector(keys.begin(), keys.end())] {
                            std::vector<Code> codes;
                            for (const ObjectKey& key : keys) {
                              codes.push_back(state->objects_.contains(std::string(key.text()))
                                                  ? Code::kOk
                                                  : Code::kNotFound);
                            }
                            return codes;
                          });
  }

  Result<StoreRequestId> submit_get(std::span<const StoreGetItem> items,
                                    TimePoint deadline) override {
    return state_->accept(OpKind::kStoreGet, items.size(), deadline,
                          [state = state_.get(), items = std::vector(items.begin(), items.end())] {
                            std::vector<Code> codes;
                            for (const StoreGetItem& item : items)
                              codes.push_back(get(*state, item));
                            return codes;
                          });
  }

  Result<StoreRequestId> submit_put(std::span<const StorePutItem> items,
                                    TimePoint deadline) override {
    return state_->accept(OpKind::kStorePut, items.size(), deadline,
                          [state = state_.get(), items = std::vector(items.begin(), items.end())] {
                            std::vector<Code> codes;
                            for (const StorePutItem& item : items) {
                              std::vector<std::byte> object;
                              for (std::span<const std::byte> span : item.spans) {
                                object.insert(object.end(), span.begin(), span.end());
                              }
                              const std::string key(item.key.text());
                              if (item.replace || !state->objects_.contains(key)) {
                                state->objects_[key] = std::move(object);
                              }
                              codes.push_back(Code::kOk);
                            }
                            return codes;
                          });
  }

  Result<StoreRequestId> submit_remove(std::span<const ObjectKey> keys,
                                       TimePoint deadline) override {
    return state_->accept(OpKind::kStoreRemove, keys.size(), deadline,
                          [state = state_.get(), keys = std::vector(keys.begin(), keys.end())] {
                            std::vector<Code> codes;
                            for (const ObjectKey& key : keys) {
                              state->objects_.erase(std::string(key.text()));
                              codes.push_back(Code::kOk);
                            }
                            return codes;
                          });
  }

  Result<StoreRequestId> submit_clear(std::string_view, TimePoint) override {
    return Error(Code::kInvalid, "rank workers never clear a store");
  }

  size_t poll(std::vector<StoreCompletion>* completions) override {
    return state_->with_lock([&] {
      state_->event_.drain();
      const size_t count = state_->completed_.size();
      for (StoreCompletion& completion : state_->completed_) {
        completions->push_back(std::move(completion));
      }
      state_->completed_.clear();
      return count;
    });
  }

  int completion_fd() const override { return state_->with_fd_ ? state_->event_.fd() : -1; }

  Status register_memory(std::span<std::byte> memory) override {
    state_->with_lock([&] { state_->registered_.push_back(memory); });
    return {};
  }

  StoreStats stats() const override { return {}; }

  // Held submissions end as `unavailable`, unless told to hang.
  Status close(TimePoint) override {
    return state_->with_lock([&]() -> Status {
      state_->closed_ = true;
      if (state_->hang_in_close_) return Error(Code::kTimeout, "hangs on request of the test");
      for (auto& finish : state_->held_) {
        StoreCompletion completion = finish();
        std::fill(completion.codes.begin(), completion.codes.end(), Code::kUnavailable);
        state_->complete(std::move(completion));
      }
      state_->held_.clear();
      return {};
    });
  }

 private:
  static Code get(FakeStoreState& state, const StoreGetItem& item) {
    const auto found = state.objects_.find(std::string(item.key.text()));
    if (found == state.objects_.end()) return Code::kNotFound;
    if (found->second.size() != item.total_bytes()) return Code::kInvalid;
    const std::byte* from = found->second.data();
    for (std::span<std::byte> span : item.spans) {
      if (!span.empty()) std::memcpy(span.data(), from, span.size());
      from += span.size();
    }
    return Code::kOk;
  }

  std::shared_ptr<FakeStoreState> state_;
};

// A fake store for a worker and the test's handle on it.
struct FakeStoreHandle {
  explicit FakeStoreHandle(bool with_fd = true)
      : state(std::make_shared<FakeStoreState>(with_fd)) {}
  std::unique_ptr<Store> make() const { return std::make_unique<FakeStore>(state); }
  std::shared_ptr<FakeStoreState> state;
};

}  // namespace tiercel::testing
