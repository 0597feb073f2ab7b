// SPDX-License-Identifier: Apache-2.0
//
// One request leaves its KV blocks behind, the next one with the same prompt finds them.

// readme:begin
#include <algorithm>
#include <cstdio>

#include "tiercel/local_cache.h"
using namespace tiercel;

int main() {
  constexpr size_t kBlockBytes = 4096, kBlocks = 4;
  std::vector<std::byte> device(2 * kBlocks * kBlockBytes);  // the engine's blocks 0 to 7
  LocalCacheConfig config;
  config.cache.spec = {"my-model", "1", "bf16", "none", 16, "", "", {GroupSpec{}}};
  config.cache.payload_bytes = {{kBlockBytes}};  // one group, one rank
  config.cache.host_blocks = 100;
  config.device_memory = {{device}};
  const SystemClock clock;
  auto tier = LocalCache::open(config, clock);
  if (!tier) return std::puts(tier.error().message().c_str()), 1;
  Cache& cache = (*tier)->cache();

  Sequence prompt(make_root(*make_namespace(config.cache.spec), Scope{}), 16);
  prompt.append(std::vector<TokenId>(kBlocks * 16, 42));
  const std::vector<DeviceBlockId> first{DeviceBlockId(0), DeviceBlockId(1), DeviceBlockId(2),
                                         DeviceBlockId(3)};
  const std::vector<DeviceBlockId> second{DeviceBlockId(4), DeviceBlockId(5), DeviceBlockId(6),
                                          DeviceBlockId(7)};

  std::fill_n(device.begin(), kBlocks * kBlockBytes, std::byte{7});  // request 1 computes …
  if (!cache.save(RequestId(1), prompt.keys(), 0, first)) return 1;  // … blocks 0 to 3
  if (!cache.commit(RequestId(1), prompt.token_count())) return 1;
  for (; !cache.idle(); (*tier)->wait(std::chrono::milliseconds(1))) cache.poll({});
  if (!cache.finish(RequestId(1))) return 1;

  if (!cache.load(RequestId(2), prompt.keys(), 0, second, kNoDeadline)) return 1;
  for (; !cache.idle(); (*tier)->wait(std::chrono::milliseconds(1))) cache.poll({});
  const auto loaded = device.begin() + kBlocks * kBlockBytes;
  const bool same = std::equal(device.begin(), loaded, loaded);
  std::puts(same ? "request 2 has the blocks of request 1" : "request 2 must compute");
  return same ? 0 : 1;
}
// readme:end
