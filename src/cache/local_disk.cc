// SPDX-License-Identifier: Apache-2.0
#include "cache/local_disk.h"

#include <utility>

#include <fmt/core.h>

#include "transfer/rank_disk_files.h"

namespace tiercel {
namespace {

// Empty if there was nothing.
std::string describe(const DiskContents& contents) {
  const uint64_t dropped = contents.torn + contents.cleared + contents.misplaced +
                           contents.disagreeing + contents.duplicates;
  if (contents.blocks.empty() && dropped == 0 && contents.other_namespace == 0) return {};
  std::string text = fmt::format("{} blocks found", contents.blocks.size());
  const auto add = [&](uint64_t count, std::string_view what) {
    if (count > 0) text += fmt::format(", {} {}", count, what);
  };
  add(contents.other_namespace, "of another namespace");
  add(contents.torn, "torn or foreign records dropped");
  add(contents.cleared, "cleared");
  add(contents.misplaced, "out of place");
  add(contents.disagreeing, "not the same on every rank");
  add(contents.duplicates, "older copies");
  return text;
}

}  // namespace

LocalDisk::LocalDisk(DiskConfig config, std::unique_ptr<DiskFolder> folder, DiskParts parts)
    : config_(std::move(config)), folder_(std::move(folder)), parts_(std::move(parts)) {
  const std::string prefix = fmt::format("disk tier {}/{}: ", config_.path, config_.instance);
  for (const std::string& note : folder_->notes()) notes_.push_back(prefix + note);
  const std::string found = describe(parts_.contents);
  if (!found.empty()) notes_.push_back(prefix + found);
}

Result<std::unique_ptr<LocalDisk>> LocalDisk::open(const DiskConfig& config,
                                                   const CacheConfig& cache) {
  DiskFolderOptions options;
  options.path = config.path;
  options.instance = config.instance;
  options.bytes = config.bytes;
  options.payload_bytes = cache.payload_bytes;
  if (cache.replicated_slices) {
    for (std::vector<uint64_t>& ranks : options.payload_bytes) ranks.resize(1);
  }
  options.preallocate = config.preallocate;
  options.direct = config.direct;
  options.reset = config.reset;
  TIERCEL_TRY_ASSIGN(const Namespace name_space, make_namespace(cache.spec));
  TIERCEL_TRY_ASSIGN(std::unique_ptr<DiskFolder> folder, DiskFolder::open(options));
  TIERCEL_TRY_ASSIGN(DiskContents contents, folder->read_contents(name_space, config.purge));
  DiskParts parts{folder->geometry(), std::move(contents)};
  std::unique_ptr<LocalDisk> disk(new LocalDisk(config, std::move(folder), std::move(parts)));
  for (uint32_t rank = 0; rank < disk->folder_->rank_count(); ++rank) {
    TIERCEL_TRY_ASSIGN(DiskRankFiles files, disk->folder_->files(rank));
    disk->files_.push_back(std::move(files));
  }
  return disk;
}

Result<std::unique_ptr<RankDisk>> LocalDisk::make_disk(uint32_t rank,
                                                       std::span<std::byte> host_memory,
                                                       const Clock& clock) {
  TIERCEL_TRY_ASSIGN(
      std::unique_ptr<RankDisk> disk,
      open_rank_disk(config_, rank, parts_.geometry, files_[rank], host_memory, clock));
  if (rank == 0) {
    notes_.push_back(
        fmt::format("disk tier {}/{}: {}", config_.path, config_.instance, disk->describe()));
  }
  return disk;
}

}  // namespace tiercel
