// SPDX-License-Identifier: Apache-2.0
//
// The fixture of the tests that play with a stub of Mooncake (stub_python.h).
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "base/arena.h"
#include "store/mooncake/mooncake_store.h"
#include "store/mooncake/stub_python.h"
#include "store/registry.h"
#include "store/store_harness.h"
#include "support/wait_readable.h"

namespace tiercel {

class MooncakeStubTest : public ::testing::Test {
 protected:
  MooncakeStubTest() { register_all_stores(registry_); }

  MooncakeStore& open(const std::string& url) {
    Result<std::unique_ptr<Store>> opened = registry_.open(url, {clock_});
    EXPECT_TRUE(opened) << opened.error().to_string();
    auto* const store = static_cast<MooncakeStore*>(opened->get());
    handle_.emplace(*std::move(opened));
    return *store;
  }

  // Memory that store and sidecar have in common.
  std::span<std::byte> share(MooncakeStore& store, size_t bytes) {
    ArenaOptions options;
    options.kind = ArenaKind::kMemfd;
    arena_ = Arena::create(bytes, options).value();
    EXPECT_TRUE(store.register_shared_memory(arena_->memory(), arena_->fd()));
    return arena_->memory();
  }

  TimePoint in(Duration duration) const { return clock_.now() + duration; }

  // Why the store cannot be used, after it has been asked.
  std::string trouble(const std::string& url) {
    const MooncakeStore& store = open(url);
    EXPECT_EQ(handle_->exists({test_key(1)}), Codes{Code::kUnavailable});
    return store.state();
  }

  // Asks until the store answers again: a sidecar that ended is left alone for a moment.
  Code ask_until_answered() {
    const TimePoint limit = in(std::chrono::milliseconds(testing::kHangMs));
    while (clock_.now() < limit) {
      const Code code = handle_->exists_one(test_key(1));
      if (code != Code::kUnavailable) return code;
    }
    return Code::kTimeout;
  }

  // The same where questions hang.
  void remove_until_ok() {
    while (handle_->remove({test_key(1)}) != Codes{Code::kOk}) {
    }
  }

  SystemClock clock_;
  StoreRegistry registry_;
  std::unique_ptr<Arena> arena_;  // outlives the store
  std::optional<Handle> handle_;
};

inline void expect_says(const std::string& text, std::string_view part) {
  EXPECT_NE(text.find(part), std::string::npos) << "it says: " << text;
}

}  // namespace tiercel
