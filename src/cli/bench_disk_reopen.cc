// SPDX-License-Identifier: Apache-2.0
//
// A start over a disk tier full of blocks. Its records are written here, as a run would have left
// them; the payloads are holes, which a start does not read.
#include <algorithm>
#include <fstream>

#include <fmt/core.h>
#include <unistd.h>

#include "tiercel/local_cache.h"

#include "cli/bench_disk.h"
#include "cli/bench_keys.h"
#include "cli/bench_measure.h"
#include "tier/disk/disk_folder.h"
#include "tier/disk/disk_geometry.h"

namespace tiercel {
namespace {

constexpr uint64_t kPayloadBytes = 4096;
constexpr uint32_t kTokens = 16;
constexpr uint32_t kBlocksOfSequence = 64;
constexpr uint32_t kRecordsPerWrite = 4096;
constexpr uint32_t kHostBlocks = 64;

// Of this process, in memory now; 0 if the system does not say.
uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t pages_all = 0;
  uint64_t pages_resident = 0;
  statm >> pages_all >> pages_resident;
  return pages_resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

// Enough for so many blocks, and not for one more.
uint64_t bound_for(uint32_t blocks) {
  return uint64_t{blocks} * (slot_stride_bytes(kPayloadBytes) + kDiskRecordBytes) +
         3 * kDiskHeaderBytes;
}

Status write_records(const DiskFolder& folder, uint32_t blocks, const Namespace& name_space) {
  TIERCEL_TRY_ASSIGN(const DiskRankFiles files, folder.files(0));
  const std::vector<BlockKey> keys = bench_keys(blocks, blocks);
  std::vector<std::byte> piece;
  for (uint32_t begin = 0; begin < blocks; begin += kRecordsPerWrite) {
    const uint32_t count = std::min(blocks - begin, kRecordsPerWrite);
    piece.resize(size_t{count} * kDiskRecordBytes);
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t slot = begin + i;
      DiskRecord record;
      record.slot = SlotId(slot);
      record.token_count = kTokens;
      record.sequence = uint64_t{slot} + 1;
      record.stored_bytes = record.raw_bytes = kPayloadBytes;
      record.name_space = name_space;
      record.key = keys[slot];
      if (slot % kBlocksOfSequence != 0) record.parent = keys[slot - 1];
      encode_disk_record(record, folder.id(),
                         std::span<std::byte, kDiskRecordBytes>(
                             piece.data() + size_t{i} * kDiskRecordBytes, kDiskRecordBytes));
    }
    const ssize_t written = ::pwrite(files.metadata.get(), piece.data(), piece.size(),
                                     static_cast<off_t>(disk_record_offset(SlotId(begin))));
    if (written != static_cast<ssize_t>(piece.size())) {
      return Error(Code::kUnavailable, "the records of the folder cannot be written");
    }
  }
  return {};
}

}  // namespace

Result<BenchFigures> bench_disk_reopen(const BenchOptions& options, const BenchContext& context) {
  const uint32_t blocks = options.disk_reopen_blocks;
  TIERCEL_TRY_ASSIGN(const BenchFolder folder, BenchFolder::create(options.disk_path));
  std::vector<std::byte> device(kPayloadBytes);
  LocalCacheConfig config;
  config.cache.spec = bench_spec(kTokens);
  config.cache.payload_bytes = {{kPayloadBytes}};
  config.cache.host_blocks = kHostBlocks;
  config.device_memory = {{device}};
  config.disk.path = folder.path("tier");
  config.disk.bytes = bound_for(blocks);
  {
    TIERCEL_TRY_ASSIGN(const Namespace name_space, make_namespace(config.cache.spec));
    DiskFolderOptions made;
    made.path = config.disk.path;
    made.bytes = config.disk.bytes;
    made.payload_bytes = config.cache.payload_bytes;
    TIERCEL_TRY_ASSIGN(const std::unique_ptr<DiskFolder> new_folder, DiskFolder::open(made));
    TIERCEL_TRY(write_records(*new_folder, blocks, name_space));
  }
  std::vector<double> seconds;
  std::vector<double> bytes;
  std::vector<double> grown;
  std::string nodes;
  // The first one does not count: it brings the records into the page cache.
  for (uint32_t run = 0; run <= options.runs && !context.stopped(); ++run) {
    const uint64_t resident_before = resident_bytes();
    std::unique_ptr<LocalCache> cache;
    Status status;
    const double time_s = seconds_of(context.clock, [&] {
      auto opened = LocalCache::open(config, context.clock);
      if (opened) {
        cache = *std::move(opened);
      } else {
        status = opened.error();
      }
    });
    TIERCEL_TRY(status);
    const CacheStats stats = cache->cache().stats();
    const uint64_t resident_after = resident_bytes();
    if (stats.disk_recovered_blocks != blocks) {
      return Error(Code::kInternal, fmt::format("{} of {} blocks were found again",
                                                stats.disk_recovered_blocks, blocks));
    }
    TIERCEL_TRY(cache->close(std::chrono::seconds(10)));
    nodes = fmt::format("{} in use, room for {}", stats.index_nodes, stats.index_nodes_max);
    if (run == 0 || context.stopped()) continue;
    seconds.push_back(time_s);
    bytes.push_back(static_cast<double>(stats.index_bytes) / static_cast<double>(blocks));
    grown.push_back((static_cast<double>(resident_after) - static_cast<double>(resident_before)) /
                    static_cast<double>(blocks));
  }
  BenchFigures figures;
  const std::string count =
      blocks % 1'000'000 == 0 ? fmt::format("{}M", blocks / 1'000'000) : std::to_string(blocks);
  figures.push_back(plain_figure("disk.reopen." + count, "s", seconds, "less than 1 s at 1 M"));
  auto& conditions = figures.back().conditions;
  conditions.emplace_back("includes", "LocalCache::open: folder, records, index, worker");
  conditions.emplace_back("blocks", std::to_string(blocks));
  conditions.emplace_back("page_cache", "warm");
  figures.push_back(
      plain_figure("disk.reopen_index_bytes." + count, "bytes", bytes, "at most 80 a block"));
  figures.back().conditions.emplace_back("nodes", nodes);
  figures.back().conditions.emplace_back(
      "resident", fmt::format("grew by {:.1f} bytes a block", spread_of(grown).median));
  return figures;
}

}  // namespace tiercel
