// SPDX-License-Identifier: Apache-2.0
//
// The protections of the engine side, each of which the meta-test of the simulation switches off in
// turn to see that the simulation notices. Production code only ever uses the defaults.
#pragma once

#include <memory>

#include "engine/prefix_cache.h"
#include "engine/resource_manager.h"

namespace tiercel {

struct EngineProtections {
  bool computed_only = true;  // a block is shared only after its step is complete
  bool newest_token = true;   // the newest sampled token counts as not computed
  bool late_loads = true;     // nothing is computed into blocks that a late load may still write to
  bool leaving = true;        // an ended request's blocks are kept while transfers touch them
  bool own_weights = true;    // KV of more than one kind of weights is not shared
  bool device_loss = true;    // nothing is found in device memory that has been lost
};

// The only maker of both; their own create() calls it with all protections on.
class EngineFactory {
 public:
  static Result<std::unique_ptr<PrefixCache>> create_prefix_cache(
      const EngineProtections& protections, const CacheConfig& config, Cache& cache);
  static Result<std::unique_ptr<ResourceManager>> create_resource_manager(
      const EngineProtections& protections, const ResourceManagerConfig& config, Cache& cache,
      PrefixCache& prefix, const Clock& clock);
};

}  // namespace tiercel
