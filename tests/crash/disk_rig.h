// SPDX-License-Identifier: Apache-2.0
//
// A LocalCache over a folder, driven with prompts whose blocks' bytes follow from their keys: a
// prompt is a number, so that another process can say what must be in the folder and check every
// byte of it.
//
// Knows nothing of the test framework: the writer that is killed (crash_writer.cc) uses it too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tiercel/local_cache.h"

namespace tiercel::testing {

// Blocks that a prompt can have: the rig has device memory for so many.
inline constexpr uint32_t kPromptBlocksMax = 8;

struct RigOptions {
  uint32_t ranks = 1;
  uint32_t groups = 1;
  uint64_t block_bytes = 4096;  // group g has (g + 1) times that
  uint32_t host_blocks = 64;
  WritePolicy policy = WritePolicy::kWriteThrough;
  bool verify = true;
  Duration load_limit = std::chrono::seconds(20);
  DiskConfig disk;
};

// The configuration without the device memory.
LocalCacheConfig rig_config(const RigOptions& options);

// What a look at a prompt brought.
struct RigRead {
  uint32_t offered = 0;  // leading blocks that match() had ready
  uint32_t loaded = 0;   // of these came to the device
  uint32_t wrong = 0;    // of these are not what was saved, in any group or rank
  std::string why;       // if less was loaded than offered; one line
};

class DiskRig {
 public:
  // As LocalCache::open.
  static Result<std::unique_ptr<DiskRig>> open(const RigOptions& options);
  // Over a cache of the caller's own making, which uses device_memory().
  static std::unique_ptr<DiskRig> make(const RigOptions& options);
  void use(Cache& cache, std::function<void(Duration)> wait);

  std::vector<std::vector<std::span<std::byte>>> device_memory();

  Cache& cache() { return *cache_; }
  LocalCache& local() { return *local_; }
  std::string notes() const;
  Status close();

  std::vector<BlockKey> keys(uint64_t prompt, uint32_t blocks) const;

  // Saves the first `blocks` blocks of the prompt and returns when the device is free again; what
  // goes to disk may still be on its way.
  Status save(uint64_t prompt, uint32_t blocks);
  // Loads what match() offers and compares all of it.
  Result<RigRead> read(uint64_t prompt, uint32_t blocks);
  // Polls until nothing is in flight or queued; kTimeout if that takes longer than a minute.
  Status settle();
  // One step: called by those above too, after each poll.
  void poll(Duration wait);
  void on_poll(std::function<void()> call) { on_poll_ = std::move(call); }

  // Leading blocks of the prompt that are on disk, on every rank and in every group.
  uint32_t on_disk(uint64_t prompt, uint32_t blocks);

 private:
  explicit DiskRig(const RigOptions& options);
  std::span<std::byte> device_block(uint32_t rank, uint32_t group, uint32_t block);
  std::vector<DeviceBlockId> device_blocks(uint32_t blocks) const;
  bool is_right(const BlockKey& key, uint32_t block);
  Status poll_until(const std::function<bool()>& is_done);

  const RigOptions options_;
  const SystemClock clock_;
  RootKey root_;
  std::vector<std::vector<std::vector<std::byte>>> memory_;  // [rank][group]
  std::unique_ptr<LocalCache> local_;
  Cache* cache_ = nullptr;
  std::function<void(Duration)> wait_;
  std::function<void()> on_poll_;
  uint64_t last_request_ = 0;
  std::optional<uint32_t> loaded_;
  bool device_released_ = false;
};

}  // namespace tiercel::testing
