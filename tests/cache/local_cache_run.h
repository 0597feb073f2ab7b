// SPDX-License-Identifier: Apache-2.0
//
// A small LocalCache, and one under way in real time.
#pragma once

#include <array>
#include <chrono>

#include <gtest/gtest.h>

#include "tiercel/local_cache.h"

namespace tiercel {

// A model of bytes, one group.
inline KvSpec byte_spec(uint32_t block_tokens) {
  KvSpec spec;
  spec.model_id = "model";
  spec.weights_revision = "1";
  spec.kv_dtype = "u8";
  spec.kv_scale_scheme = "none";
  spec.block_tokens = block_tokens;
  spec.groups = {GroupSpec{}};
  return spec;
}

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
