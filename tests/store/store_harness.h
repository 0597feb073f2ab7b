// SPDX-License-Identifier: Apache-2.0
//
// What the tests of stores share: keys, values, memory with guards around it, and a handle that
// submits and waits for the answer.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>

#include "tiercel/key.h"
#include "tiercel/store.h"

#include "base/random.h"

namespace tiercel {

inline Namespace test_namespace(uint8_t number) {
  Namespace name_space;
  name_space.bytes.fill(std::byte{number});
  return name_space;
}

// Different numbers give different keys; the namespace is the leading part of all of them.
inline ObjectKey test_key(uint32_t number, uint8_t name_space = 1) {
  BlockKey block;
  for (size_t i = 0; i < sizeof number; ++i) {
    block.bytes[i] = static_cast<std::byte>(number >> (8 * i));
  }
  return ObjectKey(test_namespace(name_space), GroupId(0), Slice{}, block);
}

inline std::vector<std::byte> test_value(size_t bytes, uint64_t seed) {
  Random random(seed);
  std::vector<std::byte> value(bytes);
  for (std::byte& byte : value) byte = static_cast<std::byte>(random.next());
  return value;
}

// Memory for one object in 1 to 4 pieces, each between guards that nobody may write.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t bytes, size_t pieces = 1) {
    memory_.assign(bytes + (pieces + 1) * kGuardBytes, kGuard);
    size_t offset = kGuardBytes;
    for (size_t i = 0; i < pieces; ++i) {
      const size_t end = i + 1 == pieces ? bytes : bytes * (i + 1) / (pieces + 1);
      const size_t size = end - filled_;
      spans_[i] = std::span(memory_).subspan(offset, size);
      filled_ = end;
      offset += size + kGuardBytes;
    }
  }
  GuardedBuffer(const std::vector<std::byte>& value, size_t pieces)
      : GuardedBuffer(value.size(), pieces) {
    size_t offset = 0;
    for (const auto& span : spans_) {
      std::copy_n(value.begin() + static_cast<std::ptrdiff_t>(offset), span.size(), span.begin());
      offset += span.size();
    }
  }

  // The spans point into the memory, which moves along but cannot be copied.
  GuardedBuffer(GuardedBuffer&&) = default;

  StoreGetItem get_item(const ObjectKey& key) const { return {key, spans_}; }
  StorePutItem put_item(const ObjectKey& key, bool replace = false) const {
    StorePutItem item{key, {}, replace};
    std::copy(spans_.begin(), spans_.end(), item.spans.begin());
    return item;
  }

  std::vector<std::byte> value() const {
    std::vector<std::byte> value;
    for (const auto& span : spans_) value.insert(value.end(), span.begin(), span.end());
    return value;
  }

  bool guards_are_intact() const {
    std::vector<std::byte> copy = memory_;
    for (const auto& span : spans_) {
      std::fill_n(copy.begin() + (span.data() == nullptr ? 0 : span.data() - memory_.data()),
                  span.size(), kGuard);
    }
    return std::all_of(copy.begin(), copy.end(), [](std::byte byte) { return byte == kGuard; });
  }

 private:
  static constexpr size_t kGuardBytes = 64;
  static constexpr std::byte kGuard{0xa7};
  size_t filled_ = 0;
  std::vector<std::byte> memory_;
  std::array<std::span<std::byte>, kStoreSpanCountMax> spans_;
};

// A store, with submissions that wait for their answers. Fails the test if an id comes twice, was
// never given, or does not come within a minute.
class Handle {
 public:
  explicit Handle(std::unique_ptr<Store> store) : store_(std::move(store)) {}

  Store& store() { return *store_; }

  // Notes a submission whose answer is fetched later.
  StoreRequestId note(Result<StoreRequestId> id) {
    EXPECT_TRUE(id) << id.error().to_string();
    if (!id) return {};
    EXPECT_NE(id->value(), 0U);
    EXPECT_TRUE(given_.insert(*id).second) << "the id " << id->value() << " was used twice";
    return *id;
  }

  // Takes what is ready; returns how many.
  size_t take() {
    std::vector<StoreCompletion> completions;
    const size_t count = store_->poll(&completions);
    EXPECT_EQ(count, completions.size());
    for (StoreCompletion& completion : completions) {
      EXPECT_TRUE(given_.contains(completion.id));
      EXPECT_TRUE(seen_.insert(completion.id).second) << completion.id.value() << " ended twice";
      answers_[completion.id] = std::move(completion.codes);
    }
    return count;
  }

  bool has_ended(StoreRequestId id) const { return seen_.contains(id); }
  size_t given() const { return given_.size(); }
  size_t ended() const { return seen_.size(); }

  std::vector<Code> wait(StoreRequestId id) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    for (take(); !has_ended(id); take()) {
      if (std::chrono::steady_clock::now() > limit) {
        ADD_FAILURE() << "no completion came";
        return {};
      }
      pollfd waiter{store_->completion_fd(), POLLIN, 0};
      if (waiter.fd < 0) {
        ADD_FAILURE() << "a store without completion_fd did not answer at once";
        return {};
      }
      ::poll(&waiter, 1, 1000);
    }
    return answers_.at(id);
  }

  std::vector<Code> exists(std::vector<ObjectKey> keys, TimePoint deadline = kNoDeadline) {
    return wait(note(store_->submit_exists(keys, deadline)));
  }
  std::vector<Code> get(std::vector<StoreGetItem> items, TimePoint deadline = kNoDeadline) {
    return wait(note(store_->submit_get(items, deadline)));
  }
  std::vector<Code> put(std::vector<StorePutItem> items, TimePoint deadline = kNoDeadline) {
    return wait(note(store_->submit_put(items, deadline)));
  }
  std::vector<Code> remove(std::vector<ObjectKey> keys, TimePoint deadline = kNoDeadline) {
    return wait(note(store_->submit_remove(keys, deadline)));
  }
  std::vector<Code> clear(const std::string& prefix, TimePoint deadline = kNoDeadline) {
    return wait(note(store_->submit_clear(prefix, deadline)));
  }

  // One object of one piece.
  Code put_value(const ObjectKey& key, const std::vector<std::byte>& value, bool replace = false) {
    const GuardedBuffer buffer(value, 1);
    return only(put({buffer.put_item(key, replace)}));
  }
  Code exists_one(const ObjectKey& key) { return only(exists({key})); }
  std::pair<Code, std::vector<std::byte>> get_value(const ObjectKey& key, size_t bytes) {
    const GuardedBuffer buffer(bytes);
    const Code code = only(get({buffer.get_item(key)}));
    EXPECT_TRUE(buffer.guards_are_intact());
    return {code, buffer.value()};
  }

 private:
  static Code only(const std::vector<Code>& codes) {
    EXPECT_EQ(codes.size(), 1U);
    return codes.size() == 1 ? codes[0] : Code::kInternal;
  }

  std::unique_ptr<Store> store_;
  std::set<StoreRequestId> given_;
  std::set<StoreRequestId> seen_;
  std::map<StoreRequestId, std::vector<Code>> answers_;
};

using Codes = std::vector<Code>;

// For messages of failed expectations.
inline void PrintTo(Code code, std::ostream* out) { *out << to_string(code); }

}  // namespace tiercel
