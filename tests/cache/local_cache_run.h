// SPDX-License-Identifier: Apache-2.0
//
// A LocalCache under way in real time.
#pragma once

#include <array>
#include <chrono>

#include <gtest/gtest.h>

#include "tiercel/local_cache.h"

namespace tiercel {

// Polls until nothing is in flight; the last load's blocks.
inline uint32_t run_until_idle(LocalCache& local) {
  std::array<CacheEvent, 8> events;
  uint32_t loaded = 0;
  for (int round = 0; round < 100000; ++round) {
    const size_t count = local.cache().poll(events);
    for (size_t i = 0; i < count; ++i) {
      if (events[i].kind == EventKind::kLoadDone) loaded = events[i].blocks;
    }
    if (count == 0 && local.cache().idle()) return loaded;
    local.wait(std::chrono::milliseconds(1));
  }
  ADD_FAILURE() << "not idle";
  return loaded;
}

}  // namespace tiercel
