// SPDX-License-Identifier: Apache-2.0
#include <thread>

#include <gtest/gtest.h>

#include "tiercel/local_cache.h"

#include "cli/command_fixture.h"
#include "store/registry.h"
#include "store/store_harness.h"
#include "support/mooncake_pool.h"

namespace tiercel {
namespace {

class StoreServeTest : public CommandTest {
 protected:
  int serve(const std::string& url) {
    return run_command(run_store_serve_command, {{"store", url}});
  }
  bool complains(std::string_view text) const {
    return error_.str().find(text) != std::string::npos;
  }
};

TEST_F(StoreServeTest, GivesMemoryToThePoolUntilItIsStopped) {
  TIERCEL_NEEDS_MOONCAKE();
  const auto pool = testing::MooncakePool::start({"--segments", "0"});
  if (pool == nullptr) return;
  const std::string separator = pool->url().find('?') == std::string::npos ? "?" : "&";
  int status = -1;
  std::thread service([&] { status = serve(pool->url() + separator + "segment=32MiB"); });
  const auto registry = make_store_registry();
  Handle client(registry->open(pool->url(), {clock_}).value());
  const std::vector<std::byte> value = test_value(100'000, 1);
  const TimePoint limit = clock_.now() + std::chrono::minutes(1);
  Code code = Code::kNoSpace;
  while (code != Code::kOk && clock_.now() < limit) code = client.put_value(test_key(1), value);
  EXPECT_EQ(code, Code::kOk);
  EXPECT_EQ(client.get_value(test_key(1), 100'000), std::pair(Code::kOk, value));
  stop_.store(true);
  service.join();
  EXPECT_EQ(status, kExitOk) << error_.str();
  EXPECT_NE(out_.str().find("giving 32 MiB"), std::string::npos) << out_.str();
  EXPECT_EQ(client.exists_one(test_key(1)), Code::kNotFound) << "it was told that it goes";
}

TEST_F(StoreServeTest, RefusesWhatGivesNothing) {
  EXPECT_EQ(serve("mooncake://127.0.0.1:1"), kExitRefused);
  EXPECT_TRUE(complains("segment=8GiB")) << error_.str();
  EXPECT_EQ(serve("memory:"), kExitRefused);
  EXPECT_EQ(serve("mooncake://127.0.0.1:1?segment=15TiB"), kExitRefused);
  EXPECT_TRUE(complains("15 TiB")) << error_.str();
  EXPECT_EQ(run_command(run_store_serve_command, {}), kExitRefused);
  EXPECT_TRUE(complains("--store")) << error_.str();
}

}  // namespace
}  // namespace tiercel
