// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cache/cache_fixture.h"

namespace tiercel {
namespace {

struct BadOption {
  std::string name;  // what the message has to say
  std::function<void(CacheConfig&)> spoil;
};

TEST(CacheConfig, RefusesEveryOptionOutOfRangeByItsName) {
  const std::vector<BadOption> bad_options = {
      {"model_id", [](CacheConfig& c) { c.spec.model_id.clear(); }},
      {"payload_bytes has 2 groups", [](CacheConfig& c) { c.payload_bytes.push_back({64}); }},
      {"number of ranks", [](CacheConfig& c) { c.payload_bytes = {{}}; }},
      {"payload_bytes is 0", [](CacheConfig& c) { c.payload_bytes = {{0}}; }},
      {"host_blocks", [](CacheConfig& c) { c.host_blocks = Cache::host_blocks_min() - 1; }},
      {"host_extents", [](CacheConfig& c) { c.host_extents = 0; }},
      {"did you mean \"lru\"", [](CacheConfig& c) { c.eviction_policy = "lrru"; }},
      {"device_blocks", [](CacheConfig& c) { c.device_blocks = UINT32_MAX; }},
      {"selective_hits", [](CacheConfig& c) { c.selective_hits = 256; }},
      {"request_blocks_max", [](CacheConfig& c) { c.request_blocks_max = 0; }},
      {"requests_max", [](CacheConfig& c) { c.requests_max = 0; }},
      {"jobs_in_flight_max", [](CacheConfig& c) { c.jobs_in_flight_max = 3; }},
      {"job_blocks_max", [](CacheConfig& c) { c.job_blocks_max = 4097; }},
      {"put_queue_max", [](CacheConfig& c) { c.put_queue_max = 0; }},
      {"prefetch_blocks_max", [](CacheConfig& c) { c.prefetch_blocks_max = 0; }},
      {"exists_blocks_max", [](CacheConfig& c) { c.exists_blocks_max = 0; }},
      {"existence_entries is 8;", [](CacheConfig& c) { c.existence_entries = 8; }},
      {"powers of two", [](CacheConfig& c) { c.existence_entries = 1000; }},
      {"quarantine_slots_max", [](CacheConfig& c) { c.quarantine_slots_max = UINT32_MAX; }},
      {"completions_per_poll_max", [](CacheConfig& c) { c.completions_per_poll_max = 0; }},
      {"sweep_nodes_per_poll", [](CacheConfig& c) { c.sweep_nodes_per_poll = 0; }},
      {"why_requests", [](CacheConfig& c) { c.why_requests = 0; }},
      {"existence_ttl", [](CacheConfig& c) { c.existence_ttl = Duration::zero(); }},
      {"absence_ttl", [](CacheConfig& c) { c.absence_ttl = Duration::zero(); }},
      {"save_deadline", [](CacheConfig& c) { c.save_deadline = Duration(-1); }},
      {"hold_limit", [](CacheConfig& c) { c.hold_limit = Duration::zero(); }},
  };
  ASSERT_TRUE(test_config(64).validate()) << test_config(64).validate().error().to_string();
  for (const BadOption& option : bad_options) {
    CacheConfig config = test_config(64);
    option.spoil(config);
    const Status status = config.validate();
    ASSERT_FALSE(status) << option.name;
    EXPECT_EQ(status.code(), Code::kInvalid) << option.name;
    EXPECT_NE(status.error().message().find(option.name), std::string::npos)
        << status.error().message();
  }
}

TEST(CacheConfig, RefusesGroupsOfDifferentRankCounts) {
  CacheConfig config = test_config(64);
  config.spec = test_spec(2);
  config.payload_bytes = {{64, 64}, {64}};
  const Status status = config.validate();
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message().find("group 1 has 1 ranks"), std::string::npos)
      << status.error().message();
}

TEST(BlockPlace, EveryPlaceHasAWordOfItsOwn) {
  std::set<std::string_view> words;
  for (const BlockPlace place :
       {BlockPlace::kComputed, BlockPlace::kDevice, BlockPlace::kHost, BlockPlace::kDisk,
        BlockPlace::kInFlight, BlockPlace::kStore, BlockPlace::kUnknown, BlockPlace::kNone}) {
    EXPECT_TRUE(words.insert(to_string(place)).second) << to_string(place);
  }
}

}  // namespace
}  // namespace tiercel
