// SPDX-License-Identifier: Apache-2.0
//
// For tests of Mooncake stores on a real pool of the test's own.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/arena.h"
#include "store/mooncake/mooncake_store.h"
#include "store/registry.h"
#include "store/store_harness.h"
#include "support/mooncake_pool.h"

namespace tiercel {

class PoolFixture : public ::testing::Test {
 protected:
  PoolFixture() { register_all_stores(registry_); }

  // False: the test must end.
  bool start(std::vector<std::string> arguments = {}) {
    pool_ = testing::MooncakePool::start(std::move(arguments));
    return pool_ != nullptr;
  }

  std::unique_ptr<Store> open_store(const std::string& options = "") {
    std::string url = pool_->url();
    if (!options.empty()) url += (url.find('?') == std::string::npos ? "?" : "&") + options;
    Result<std::unique_ptr<Store>> opened = registry_.open(url, {clock_});
    EXPECT_TRUE(opened) << opened.error().to_string();
    return *std::move(opened);
  }

  std::unique_ptr<Arena> make_arena(size_t bytes) {
    ArenaOptions options;
    options.kind = ArenaKind::kMemfd;
    return Arena::create(bytes, options).value();
  }

  TimePoint in(Duration duration) const { return clock_.now() + duration; }

  // Puts until one is ok; the last code. A pool takes its time to notice what is gone.
  Code put_until_ok(Handle& handle, const ObjectKey& key, const std::vector<std::byte>& value,
                    Duration limit = std::chrono::seconds(30)) {
    const TimePoint end = in(limit);
    Code code = Code::kUnavailable;
    while (clock_.now() < end) {
      code = handle.put_value(key, value);
      if (code == Code::kOk) break;
    }
    return code;
  }

  SystemClock clock_;
  StoreRegistry registry_;
  std::unique_ptr<testing::MooncakePool> pool_;
};

}  // namespace tiercel
