// SPDX-License-Identifier: Apache-2.0
#include "crash/disk_rig.h"

#include <algorithm>
#include <array>
#include <utility>

#include "cli/oracle.h"
#include "index/block_index.h"

namespace tiercel::testing {
namespace {

constexpr uint32_t kBlockTokens = 4;
constexpr Duration kPollWait = std::chrono::milliseconds(1);
constexpr Duration kSettleLimit = std::chrono::minutes(1);
// What the device holds before a load, so that a block that was not written shows.
constexpr std::byte kUntouched{0xA5};

}  // namespace

LocalCacheConfig rig_config(const RigOptions& options) {
  LocalCacheConfig config;
  config.cache.spec.model_id = "model";
  config.cache.spec.weights_revision = "1";
  config.cache.spec.kv_dtype = "u8";
  config.cache.spec.kv_scale_scheme = "none";
  config.cache.spec.block_tokens = kBlockTokens;
  config.cache.spec.groups.assign(options.groups, GroupSpec{});
  for (uint32_t group = 0; group < options.groups; ++group) {
    config.cache.payload_bytes.emplace_back(options.ranks, options.block_bytes * (group + 1));
  }
  config.cache.host_blocks = options.host_blocks;
  config.cache.host_extents = std::min(64u, options.host_blocks);
  config.cache.host_to_disk = options.policy;
  // Else a prompt that comes finds no free slot and takes one whose block was not moved yet.
  config.cache.write_back_free_slots =
      std::min(kPromptBlocksMax * options.groups, options.host_blocks / 2);
  config.huge_pages = false;
  config.verify = options.verify;
  config.disk = options.disk;
  return config;
}

DiskRig::DiskRig(const RigOptions& options)
    : options_(options),
      root_(make_root(*make_namespace(rig_config(options).cache.spec), Scope{})),
      memory_(options.ranks) {
  for (auto& rank : memory_) {
    for (uint32_t group = 0; group < options.groups; ++group) {
      rank.emplace_back(kPromptBlocksMax * options.block_bytes * (group + 1));
    }
  }
}

Result<std::unique_ptr<DiskRig>> DiskRig::open(const RigOptions& options) {
  std::unique_ptr<DiskRig> rig = make(options);
  LocalCacheConfig config = rig_config(options);
  config.device_memory = rig->device_memory();
  TIERCEL_TRY_ASSIGN(rig->local_, LocalCache::open(config, rig->clock_));
  LocalCache* local = rig->local_.get();
  rig->use(local->cache(), [local](Duration timeout) { local->wait(timeout); });
  return rig;
}

std::unique_ptr<DiskRig> DiskRig::make(const RigOptions& options) {
  return std::unique_ptr<DiskRig>(new DiskRig(options));
}

void DiskRig::use(Cache& cache, std::function<void(Duration)> wait) {
  cache_ = &cache;
  wait_ = std::move(wait);
}

std::vector<std::vector<std::span<std::byte>>> DiskRig::device_memory() {
  std::vector<std::vector<std::span<std::byte>>> memory;
  for (auto& rank : memory_) {
    memory.emplace_back(rank.begin(), rank.end());
  }
  return memory;
}

std::string DiskRig::notes() const {
  std::string text;
  for (const std::string& note : local_->notes()) text += note + "\n";
  return text;
}

Status DiskRig::close() { return local_->close(std::chrono::seconds(30)); }

std::vector<BlockKey> DiskRig::keys(uint64_t prompt, uint32_t blocks) const {
  std::vector<TokenId> tokens(blocks * kBlockTokens, 7);
  tokens[0] = static_cast<TokenId>(prompt);
  tokens[1] = static_cast<TokenId>(prompt >> 32);
  Sequence sequence(root_, kBlockTokens);
  sequence.append(tokens);
  return {sequence.keys().begin(), sequence.keys().end()};
}

std::span<std::byte> DiskRig::device_block(uint32_t rank, uint32_t group, uint32_t block) {
  const uint64_t bytes = options_.block_bytes * (group + 1);
  return std::span(memory_[rank][group]).subspan(block * bytes, bytes);
}

std::vector<DeviceBlockId> DiskRig::device_blocks(uint32_t blocks) const {
  std::vector<DeviceBlockId> ids;
  for (uint32_t group = 0; group < options_.groups; ++group) {
    for (uint32_t block = 0; block < blocks; ++block) ids.emplace_back(block);
  }
  return ids;
}

bool DiskRig::is_right(const BlockKey& key, uint32_t block) {
  for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
    for (uint32_t group = 0; group < options_.groups; ++group) {
      const OracleBlock wanted{key, GroupId(static_cast<uint8_t>(group)),
                               static_cast<uint16_t>(rank)};
      if (find_oracle_mismatch(wanted, device_block(rank, group, block))) return false;
    }
  }
  return true;
}

Status DiskRig::save(uint64_t prompt, uint32_t blocks) {
  const std::vector<BlockKey> keys = this->keys(prompt, blocks);
  for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
    for (uint32_t group = 0; group < options_.groups; ++group) {
      for (uint32_t block = 0; block < blocks; ++block) {
        fill_oracle(
            {keys[block], GroupId(static_cast<uint8_t>(group)), static_cast<uint16_t>(rank)},
            device_block(rank, group, block));
      }
    }
  }
  const RequestId request(++last_request_);
  TIERCEL_TRY(cache_->save(request, keys, 0, device_blocks(blocks)));
  TIERCEL_TRY(cache_->commit(request, uint64_t{blocks} * kBlockTokens));
  device_released_ = false;
  TIERCEL_TRY_ASSIGN(const Farewell farewell, cache_->finish(request));
  if (!farewell.device_busy) return {};
  return poll_until([this] { return device_released_; });
}

Result<RigRead> DiskRig::read(uint64_t prompt, uint32_t blocks) {
  const std::vector<BlockKey> keys = this->keys(prompt, blocks);
  for (auto& rank : memory_) {
    for (auto& group : rank) std::fill(group.begin(), group.end(), kUntouched);
  }
  RigRead read;
  read.offered = cache_->match(keys, 0).ready_blocks;
  const RequestId request(++last_request_);
  loaded_.reset();
  device_released_ = false;
  TIERCEL_TRY_ASSIGN(const uint32_t started, cache_->load(request, keys, 0, device_blocks(blocks),
                                                          clock_.now() + options_.load_limit));
  if (started > 0) {
    TIERCEL_TRY(poll_until([this] { return loaded_.has_value(); }));
    read.loaded = *loaded_;
  }
  for (uint32_t block = 0; block < read.loaded; ++block) {
    if (!is_right(keys[block], block)) ++read.wrong;
  }
  if (const WhyRecord* why = cache_->why(request); why != nullptr && read.loaded < read.offered) {
    read.why = why->to_string();
    std::replace(read.why.begin(), read.why.end(), '\n', ';');
  }
  TIERCEL_TRY_ASSIGN(const Farewell farewell, cache_->finish(request));
  if (farewell.device_busy) TIERCEL_TRY(poll_until([this] { return device_released_; }));
  return read;
}

Status DiskRig::settle() {
  return poll_until([this] { return cache_->idle(); });
}

void DiskRig::poll(Duration wait) {
  std::array<CacheEvent, 16> events;
  const size_t count = cache_->poll(events);
  for (size_t i = 0; i < count; ++i) {
    if (events[i].kind == EventKind::kLoadDone) loaded_ = events[i].blocks;
    if (events[i].kind == EventKind::kDeviceReleased) device_released_ = true;
  }
  if (on_poll_) on_poll_();
  if (count == 0) wait_(wait);
}

Status DiskRig::poll_until(const std::function<bool()>& is_done) {
  const TimePoint give_up = clock_.now() + kSettleLimit;
  while (!is_done()) {
    if (clock_.now() >= give_up) return Error(Code::kTimeout, "the cache does not come to an end");
    poll(kPollWait);
  }
  return {};
}

uint32_t DiskRig::on_disk(uint64_t prompt, uint32_t blocks) {
  const std::vector<BlockKey> keys = this->keys(prompt, blocks);
  const BlockIndex& index = cache_->index();
  for (uint32_t block = 0; block < blocks; ++block) {
    for (uint32_t group = 0; group < options_.groups; ++group) {
      const NodeId node = index.find(keys[block], GroupId(static_cast<uint8_t>(group)));
      if (node == kNoNode || !index.is_in(node, Tier::kDisk)) return block;
    }
  }
  return blocks;
}

}  // namespace tiercel::testing
