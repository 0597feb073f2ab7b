// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "tiercel/local_cache.h"

int main() {
  tiercel::LocalCacheConfig config;
  config.cache.spec.model_id = "model";
  config.cache.spec.weights_revision = "1";
  config.cache.spec.kv_dtype = "u8";
  config.cache.spec.kv_scale_scheme = "none";
  config.cache.spec.groups = {tiercel::GroupSpec{}};
  config.cache.payload_bytes = {{4096}};
  config.cache.host_blocks = 64;
  config.store_url = "memory:";
  config.metadata_only = true;
  const tiercel::SystemClock clock;
  const auto local = tiercel::LocalCache::open(config, clock);
  if (!local) std::printf("%s\n", local.error().to_string().c_str());
  if (!local || !(*local)->close(std::chrono::seconds(5))) return 1;
  std::printf("a cache of %llu slots\n",
              static_cast<unsigned long long>((*local)->cache().stats().host_slots_total));
  return 0;
}
