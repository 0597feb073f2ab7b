// SPDX-License-Identifier: Apache-2.0
//
// `memory:`, the reference store: objects in this process's memory. It answers at once, so that its
// completions are always ready by the time a submission returns.
#pragma once

#include <functional>
#include <memory>

#include "tiercel/clock.h"
#include "tiercel/store.h"

#include "base/memory_limit.h"
#include "store/memory/memory_pool.h"

namespace tiercel {

class StoreRegistry;

// One handle of a pool. `clock` outlives the store.
std::unique_ptr<Store> make_memory_store(std::shared_ptr<MemoryPool> pool, const Clock& clock);

// What register_memory_store does, with `memory` as what says how much memory there is.
void add_memory_store(StoreRegistry& registry, std::function<MemoryLimit()> memory);

}  // namespace tiercel
