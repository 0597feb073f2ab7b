// SPDX-License-Identifier: Apache-2.0
//
// F50: with a pool smaller than the longest request needs, scheduling looped for ever. Too small is
// refused at start, with the numbers; with what is allowed, every request ends.
#include <string>
#include <vector>

#include "cache/cache_fixture.h"

namespace tiercel {
namespace {

using FieldCaseF50 = CacheFixture;

TEST_F(FieldCaseF50, AHostTierThatIsTooSmallForWhatIsInFlightIsRefusedAtStart) {
  const uint32_t need = Cache::host_blocks_min();
  for (const uint32_t blocks : {0u, 1u, need - 1}) {
    FakeDataPlane ranks;
    const auto refused = Cache::create(test_config(blocks), ranks, clock);
    ASSERT_EQ(refused.code(), Code::kInvalid) << blocks;
    EXPECT_NE(refused.error().message().find("host_blocks is " + std::to_string(blocks) +
                                             "; allowed: " + std::to_string(need) + " to "),
              std::string::npos)
        << refused.error().message();
  }
}

TEST_F(FieldCaseF50, TheLongestRequestEndsInTheSmallestTier) {
  const uint32_t need = Cache::host_blocks_min();
  for (const uint32_t blocks : {need, need + 1}) {
    const CacheConfig config = test_config(blocks, 1, true);
    open(config);
    const auto keys = test_keys(config.request_blocks_max);
    const auto count = static_cast<uint32_t>(keys.size());
    store(1, keys);
    EXPECT_GT(ready(keys), 0u);
    EXPECT_LE(ready(keys), blocks);
    // All of it is in the store, more than the tier can hold at once.
    const auto prefetched = cache->prefetch(RequestId(2), keys, 0, kNoDeadline);
    ASSERT_TRUE(prefetched) << prefetched.error().message();
    settle();
    const auto loaded = cache->load(RequestId(2), keys, 0, device(count), kNoDeadline);
    ASSERT_TRUE(loaded) << loaded.error().message();
    settle();
    ASSERT_TRUE(cache->finish(RequestId(2)));
    settle();
    EXPECT_EQ(cache->check(true), "");
  }
}

}  // namespace
}  // namespace tiercel
