// SPDX-License-Identifier: Apache-2.0
//
// A cache with a device tier of ours, and a data plane that does what it is told.
#pragma once

#include <memory>
#include <vector>

#include "cache/cache_fixture.h"
#include "engine/prefix_cache.h"

namespace tiercel {

class PrefixCacheFixture : public CacheFixture {
 protected:
  void open_with_device(uint32_t device_blocks, uint32_t host_blocks = 32) {
    CacheConfig config = test_config(host_blocks);
    config.device_blocks = device_blocks;
    open(config);
    prefix = *PrefixCache::create(config, *cache);
  }

  // Every transfer ends well, until nothing moves any more.
  void settle_all() {
    for (int round = 0; round < 100; ++round) {
      while (!plane->open.empty()) plane->complete(0);
      CacheEvent events[64];
      const size_t count = prefix->poll(events);
      last_events.assign(events, events + count);
      ASSERT_EQ(cache->check(false, prefix->hold_count()), "");
      ASSERT_EQ(prefix->check(), "");
      if (plane->open.empty() && cache->idle() && count == 0) return;
    }
  }

  std::unique_ptr<PrefixCache> prefix;
  std::vector<CacheEvent> last_events;
};

}  // namespace tiercel
