// SPDX-License-Identifier: Apache-2.0
#include "sim_disks.h"

#include <algorithm>
#include <array>
#include <functional>
#include <queue>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "tier/disk/disk_rank_files.h"
#include "tier/disk/disk_scan.h"

namespace tiercel::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing::DiskFault;
using testing::DiskFaultAction;

constexpr uint32_t kQueueDepth = 12;
// Of one request, unless it is one of the slow ones.
constexpr uint64_t kUsualUs = 2'000;
constexpr uint64_t kSlowUs = 60'000;
constexpr double kSlowShare = 0.05;

// Lets the DiskIo below carry out as many requests as have had their time; which ones is up to it.
class SlowDiskIo final : public DiskIo {
 public:
  SlowDiskIo(std::unique_ptr<DiskIo> inner, uint64_t seed, const Clock& clock)
      : inner_(std::move(inner)), random_(seed), clock_(clock) {}

  size_t capacity() const override { return inner_->capacity(); }
  void submit(std::span<const DiskIoRequest> requests) override {
    for (size_t i = 0; i < requests.size(); ++i) {
      const uint64_t most = random_.chance(kSlowShare) ? kSlowUs : kUsualUs;
      due_.push(clock_.now() + microseconds(static_cast<int64_t>(random_.below(most))));
    }
    inner_->submit(requests);
  }
  size_t poll(std::span<DiskIoCompletion> out) override {
    size_t count = 0;
    while (count < out.size() && !due_.empty() && due_.top() <= clock_.now()) {
      count += inner_->poll(out.subspan(count, 1));
      due_.pop();
    }
    return count;
  }
  int completion_fd() const override { return -1; }
  std::string describe() const override { return "slow, above " + inner_->describe(); }

 private:
  const std::unique_ptr<DiskIo> inner_;
  Random random_;
  const Clock& clock_;
  std::priority_queue<TimePoint, std::vector<TimePoint>, std::greater<>> due_;
};

DiskFault random_fault(Random& random, DiskFaultAction action) {
  DiskFault fault{.action = action};
  fault.error = random.chance(0.3) ? ENOSPC : EIO;
  fault.first = random.between(1, 6);
  fault.count = random.chance(0.3) ? testing::kDiskFaultForEver : random.between(1, 12);
  fault.bit = random.next();
  if (random.chance(0.5)) fault.file = random.chance(0.5) ? DiskFile::kData : DiskFile::kMetadata;
  constexpr std::array kKinds = {DiskIoKind::kRead, DiskIoKind::kWrite, DiskIoKind::kSync};
  if (random.chance(0.6)) fault.kind = kKinds[random.below(kKinds.size())];
  return fault;
}

}  // namespace

// What the process of a rank has of its disk.
class SimDisks::Io final : public DiskIo {
 public:
  Io(Rank& rank, Coverage& met, std::unique_ptr<testing::FaultyDiskIo> inner)
      : rank_(rank), met_(met), inner_(std::move(inner)) {
    rank_.faulty = inner_.get();
  }
  ~Io() override {
    met_["disk.fault.struck"] += inner_->struck();
    rank_.has_lied |= inner_->lied() > 0;
    if (rank_.faulty == inner_.get()) rank_.faulty = nullptr;
  }
  size_t capacity() const override { return inner_->capacity(); }
  void submit(std::span<const DiskIoRequest> requests) override { inner_->submit(requests); }
  size_t poll(std::span<DiskIoCompletion> out) override { return inner_->poll(out); }
  int completion_fd() const override { return -1; }
  std::string describe() const override { return inner_->describe(); }

 private:
  Rank& rank_;
  Coverage& met_;
  const std::unique_ptr<testing::FaultyDiskIo> inner_;
};

SimDisks::SimDisks(const SimConfig& config, const Sabotage& sabotage, const Clock& clock)
    : config_(config), protections_(sabotage.disk), clock_(clock) {
  if (config.disk_blocks == 0) return;
  PayloadBytes payload_bytes = config.cache.payload_bytes;
  if (config.cache.replicated_slices) {
    for (auto& ranks : payload_bytes) ranks.resize(1);
  }
  auto geometry = SlotGeometry::for_blocks(payload_bytes, config.disk_blocks, config.disk_extents);
  const auto name_space = make_namespace(config.cache.spec);
  if (!geometry || !name_space) fail("setup", "the disks have no geometry");
  geometry_ = *std::move(geometry);
  name_space_ = *name_space;
  folder_id_.fill(std::byte{0x5d});
  for (uint32_t rank = 0; rank < geometry_->rank_count(); ++rank) {
    ranks_.push_back(std::make_unique<Rank>());
    make_files(rank);
  }
}

void SimDisks::make_files(uint32_t rank) {
  testing::MemoryDisk& disk = ranks_[rank]->disk;
  disk.resize(DiskFile::kMetadata, 0);
  disk.resize(DiskFile::kData, 0);
  const SlotGeometryOptions shape = geometry_->options();
  DiskHeader first{.kind = DiskFileKind::kMetadata,
                   .folder_id = folder_id_,
                   .rank = rank,
                   .rank_count = geometry_->rank_count(),
                   .payload_bytes = {},
                   .slots_per_extent = shape.slots_per_extent,
                   .extent_count = shape.extent_count,
                   .last_extent_slots = shape.last_extent_slots,
                   .generation = 0,
                   .first_sequence = 0};
  for (const auto& ranks : shape.payload_bytes) first.payload_bytes.push_back(ranks[rank]);
  // As the folder makes them.
  for (const uint64_t generation : {uint64_t{0}, uint64_t{1}}) {
    first.generation = generation;
    std::array<std::byte, kDiskHeaderBytes> page;
    encode_disk_header(first, page);
    disk.put(DiskFile::kMetadata, disk_header_offset(generation), page);
  }
  disk.resize(DiskFile::kMetadata, disk_metadata_bytes(*geometry_));
  disk.resize(DiskFile::kData, disk_data_bytes(*geometry_, rank));
  ranks_[rank]->has_lied = false;
}

std::optional<DiskHeader> SimDisks::find_header(uint32_t rank) const {
  std::optional<DiskHeader> best;
  for (const uint64_t generation : {uint64_t{0}, uint64_t{1}}) {
    const auto page = ranks_[rank]
                          ->disk.contents(DiskFile::kMetadata)
                          .subspan(disk_header_offset(generation))
                          .first<kDiskHeaderBytes>();
    const auto header = decode_disk_header(page);
    if (!header || header->generation % 2 != generation) continue;
    if (!best || header->generation > best->generation) best = *header;
  }
  return best;
}

DiskHeader SimDisks::header(uint32_t rank) const {
  const std::optional<DiskHeader> found = find_header(rank);
  if (!found) fail("reopen", fmt::format("rank {} has no header any more", rank));
  return *found;
}

void SimDisks::make_anew_what_has_no_header() {
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (find_header(rank)) continue;
    if (!ranks_[rank]->has_lied) {
      fail("reopen",
           fmt::format("rank {} has no header any more, though its disk has kept all that "
                       "it has confirmed",
                       rank));
    }
    ++met_["restart.headers_lost"];
    if (rank > 0) {
      make_files(rank);
      continue;
    }
    for (std::byte& byte : folder_id_) byte ^= std::byte{0xff};  // another one
    for (uint32_t each = 0; each < ranks_.size(); ++each) make_files(each);
    return;
  }
}

DiskRecordSource SimDisks::records(uint32_t rank) const {
  return [this, rank](uint64_t offset, std::span<std::byte> out) -> Result<size_t> {
    const std::span<const std::byte> file = ranks_[rank]->disk.contents(DiskFile::kMetadata);
    const size_t length = std::min<size_t>(out.size(), file.size() - std::min(offset, file.size()));
    std::copy_n(file.begin() + static_cast<ptrdiff_t>(offset), length, out.begin());
    return length;
  };
}

std::unique_ptr<RankDisk> SimDisks::open(uint32_t rank, uint64_t seed) {
  if (rank >= ranks_.size()) return nullptr;
  Random random(seed);
  RankDiskOptions options;
  options.rank = rank;
  options.operations_max = 8;
  options.sync = config_.disk_sync;
  options.sync_interval = kDiskSyncInterval;
  options.stuck_after = milliseconds(300);
  options.breaker.backoff = milliseconds(100);
  options.breaker.backoff_max = kDiskBackoffMax;
  const DiskHeader counts = header(rank);
  auto found = read_disk_rank_records(records(rank), counts, geometry_->slot_count_max());
  if (!found) fail("reopen", found.error().to_string());
  options.payload_checksums = std::move(found->payload_checksums);
  auto memory = ranks_[rank]->disk.open({.queue_depth = kQueueDepth, .order_seed = random.next()});
  auto slow = std::make_unique<SlowDiskIo>(std::move(memory), random.next(), clock_);
  auto io = std::make_unique<Io>(*ranks_[rank], met_,
                                 std::make_unique<testing::FaultyDiskIo>(std::move(slow)));
  auto disk =
      RankDiskFactory::create(protections_, options, *geometry_, counts, found->next_sequence,
                              std::move(io), clock_, [] { return int64_t{1'800'000'000}; });
  if (!disk) fail("setup", disk.error().to_string());
  return *std::move(disk);
}

DiskParts SimDisks::read() const {
  std::vector<DiskScanRank> ranks;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    ranks.push_back({records(rank), header(rank).first_sequence});
  }
  auto scan = scan_disk_records(ranks, *geometry_, folder_id_, name_space_, false);
  if (!scan) fail("reopen", scan.error().to_string());
  return {*geometry_, std::move(scan->contents)};
}

void SimDisks::crash(uint32_t rank, Random& random) {
  if (rank < ranks_.size()) ranks_[rank]->disk.crash(random);
}

void SimDisks::crash_all(Random& random) {
  for (const auto& rank : ranks_) rank->disk.crash(random);
}

void SimDisks::power_cut(Random& random) {
  for (const auto& rank : ranks_) rank->disk.power_cut(random);
}

std::string SimDisks::pick_faults(Random& random) {
  const double choice = random.real();
  if (choice < 0.35) {
    heal();
    return "none";
  }
  testing::FaultyDiskIo* faulty = ranks_[random.below(ranks_.size())]->faulty;
  if (faulty == nullptr) return "none";
  struct Kind {
    const char* name;
    DiskFaultAction action;
  };
  std::vector<Kind> kinds = {{"error", DiskFaultAction::kError},
                             {"torn_error", DiskFaultAction::kTornError},
                             {"short", DiskFaultAction::kShort},
                             {"hang", DiskFaultAction::kHang}};
  if (config_.corruption) {
    kinds = {{"flip_bit", DiskFaultAction::kFlipBit}, {"lost", DiskFaultAction::kLost}};
  }
  faulty->clear();
  std::string names;
  for (uint64_t left = random.between(1, 2); left > 0; --left) {
    const Kind kind = kinds[random.below(kinds.size())];
    DiskFault fault = random_fault(random, kind.action);
    if (kind.action == DiskFaultAction::kShort) {
      // What comes short for ever never ends, and a sync is not short of anything.
      fault.count = random.between(1, 4);
      fault.kind = random.chance(0.5) ? DiskIoKind::kRead : DiskIoKind::kWrite;
    }
    faulty->add(fault);
    ++met_[fmt::format("disk.fault.{}", kind.name)];
    names += std::string(names.empty() ? "" : ", ") + kind.name;
  }
  return names;
}

void SimDisks::heal() {
  for (const auto& rank : ranks_) {
    if (rank->faulty == nullptr) continue;
    if (rank->faulty->hanging() > 0) ++met_["disk.released"];
    rank->faulty->clear();
    rank->faulty->release();
  }
}

size_t SimDisks::hanging() const {
  size_t hanging = 0;
  for (const auto& rank : ranks_) {
    if (rank->faulty != nullptr) hanging += rank->faulty->hanging();
  }
  return hanging;
}

bool SimDisks::is_all_durable() const {
  return std::ranges::all_of(ranks_, [](const auto& rank) {
    return rank->disk.unsynced_writes(DiskFile::kData) == 0 &&
           rank->disk.unsynced_writes(DiskFile::kMetadata) == 0;
  });
}

std::span<const std::byte> SimDisks::payload(uint32_t rank, SlotId slot, GroupId group) const {
  const auto offset = geometry_->offset(slot, group, rank);
  if (!offset) fail("durable", fmt::format("there is no disk slot {}", slot.value()));
  return ranks_[rank]
      ->disk.contents(DiskFile::kData)
      .subspan(disk_slot_offset(*offset), geometry_->payload_bytes(group, rank));
}

void SimDisks::check_bounds() const {
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    const testing::MemoryDisk& disk = ranks_[rank]->disk;
    const uint64_t data = disk.contents(DiskFile::kData).size();
    const uint64_t metadata = disk.contents(DiskFile::kMetadata).size();
    if (data > disk_data_bytes(*geometry_, rank) || metadata > disk_metadata_bytes(*geometry_)) {
      fail("bounds",
           fmt::format("the files of rank {} have grown to {} and {} bytes", rank, data, metadata));
    }
  }
}

}  // namespace tiercel::sim
