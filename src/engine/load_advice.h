// SPDX-License-Identifier: Apache-2.0
//
// LoadAdvice: how the scheduler is told which loads are worth their time. Without advice it loads
// everything that is ready, and waits for everything that a store may have.
//
// Threads: control thread only; no call blocks.
#pragma once

#include <cstdint>
#include <span>

#include "tiercel/cache.h"
#include "tiercel/clock.h"
#include "tiercel/ids.h"

namespace tiercel {

// One request that waits, and where its blocks are.
struct LoadQuestion {
  RequestId request;
  std::span<const BlockPlace> places;  // of its leading blocks; as long as it may load
  uint32_t device_blocks = 0;          // leading blocks that are on the device already
  uint32_t ready_blocks = 0;           // leading blocks that can be loaded now
  uint32_t possible_blocks = 0;        // the same after a prefetch, if the store has them all
  uint64_t token_count = 0;            // tokens whose KV the request needs
  TimePoint now;
};

class LoadAdvice {
 public:
  virtual ~LoadAdvice() = default;

  // How many leading blocks are worth having on the device before prefill begins: device_blocks to
  // ready_blocks; what is outside is taken as the nearer end. The rest is computed.
  virtual uint32_t blocks_to_load(const LoadQuestion& question) = 0;

  // Whether to wait for what lies behind ready_blocks, at most until the prefetch deadline.
  virtual bool prefetch_pays(const LoadQuestion& question) = 0;
};

}  // namespace tiercel
