// SPDX-License-Identifier: Apache-2.0
#include "tiercel/local_cache.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>

#include <poll.h>

#include "base/arena.h"
#include "base/memory_limit.h"
#include "cache/host_geometry.h"
#include "cache/local_disk.h"
#include "cache/protections.h"
#include "store/registry.h"
#include "tier/tier_memory.h"
#include "transfer/device_copier.h"
#include "transfer/in_process_data_plane.h"
#include "transfer/layout_copier_cpu.h"
#include "transfer/metadata_data_plane.h"
#include "transfer/process/process_data_plane.h"

namespace tiercel {
namespace {

constexpr Duration kCloseTimeout = std::chrono::seconds(5);
constexpr Duration kStartTimeout = std::chrono::seconds(30);

// What one rank needs beside its worker.
struct RankMemory {
  std::unique_ptr<Arena> arena;
  std::unique_ptr<DeviceCopier> copier;
};

class LocalCacheObject final : public LocalCache {
 public:
  LocalCacheObject(std::shared_ptr<StoreRegistry> registry, std::unique_ptr<LocalDisk> disk,
                   std::vector<RankMemory> ranks, std::unique_ptr<DataPlane> plane,
                   std::unique_ptr<Cache> cache, const Clock& clock, const Clock& data_clock)
      : clock_(clock),
        data_clock_(data_clock),
        registry_(std::move(registry)),
        disk_(std::move(disk)),
        ranks_(std::move(ranks)),
        plane_(std::move(plane)),
        cache_(std::move(cache)) {}

  ~LocalCacheObject() override {
    // Best effort: the plane's own destructor ends its threads in any case.
    if (!closed_) static_cast<void>(close(kCloseTimeout).has_value());
  }

  Cache& cache() override { return *cache_; }
  DataPlane& data_plane() override { return *plane_; }
  const std::vector<std::string>& notes() const override {
    static const std::vector<std::string> nothing;
    return disk_ == nullptr ? nothing : disk_->notes();
  }

  void wait(Duration timeout) override {
    pollfd descriptor{plane_->completion_fd(), POLLIN, 0};
    if (descriptor.fd < 0 || timeout <= Duration::zero()) return;
    const timespec limit{static_cast<time_t>(timeout.count() / 1'000'000'000),
                         static_cast<long>(timeout.count() % 1'000'000'000)};
    // Errors and signals end the wait early, which is always allowed.
    static_cast<void>(::ppoll(&descriptor, 1, &limit, nullptr));
  }

  Status close(Duration timeout) override {
    closed_ = true;
    TIERCEL_TRY(plane_->usable());
    cache_->close(clock_.now() + timeout);
    const TimePoint give_up = system_clock_.now() + timeout;
    drain(give_up);
    const Duration rest = std::max(give_up - system_clock_.now(), Duration::zero());
    const Status closed = plane_->close(data_clock_.now() + rest);
    if (closed) drain(system_clock_.now() + kCloseTimeout);
    return closed;
  }

 private:
  // Polls until the cache is closed or the time has come; what it says no longer matters to
  // anybody.
  void drain(TimePoint give_up) {
    std::array<CacheEvent, 64> events;
    while (true) {
      cache_->poll(events);
      if (cache_->closed() || system_clock_.now() >= give_up) return;
      wait(std::chrono::milliseconds(1));
    }
  }

  const Clock& clock_;
  const Clock& data_clock_;
  // How long close() really takes is not a matter of virtual time.
  const SystemClock system_clock_;
  // In this order: the cache uses the plane, the plane's workers use memory, disks and stores.
  std::shared_ptr<StoreRegistry> registry_;
  std::unique_ptr<LocalDisk> disk_;  // null without a disk tier
  std::vector<RankMemory> ranks_;
  std::unique_ptr<DataPlane> plane_;
  std::unique_ptr<Cache> cache_;
  bool closed_ = false;
};

Result<std::unique_ptr<DeviceCopier>> make_copier(const LocalCacheConfig& config, uint32_t rank) {
  if (!config.device_layouts.empty()) {
    TIERCEL_TRY_ASSIGN(CpuLayoutCopier copier,
                       CpuLayoutCopier::create(config.device_layouts[rank]));
    return std::make_unique<CpuLayoutCopier>(std::move(copier));
  }
  const size_t group_count = config.cache.payload_bytes.size();
  if (config.device_memory[rank].size() != group_count) {
    return Error(Code::kInvalid, "device_memory of rank " + std::to_string(rank) + " has " +
                                     std::to_string(config.device_memory[rank].size()) +
                                     " groups; allowed: exactly " + std::to_string(group_count));
  }
  std::vector<ContiguousGroupMemory> groups;
  groups.reserve(group_count);
  for (size_t group = 0; group < group_count; ++group) {
    groups.push_back({config.device_memory[rank][group], config.cache.payload_bytes[group][rank]});
  }
  TIERCEL_TRY_ASSIGN(ContiguousCopier copier, ContiguousCopier::create(groups));
  return std::make_unique<ContiguousCopier>(std::move(copier));
}

// No store may cost more than its deadline once (docs/stores.md, `guard+`). What is no URL at all
// is left for the registry to refuse.
std::string guarded_url(const std::string& url) {
  const size_t colon = url.find(':');
  if (colon == std::string::npos) return url;
  constexpr std::string_view kGuard = "guard+";
  const std::string head = "+" + url.substr(0, colon);
  return head.find("+" + std::string(kGuard)) != std::string::npos ? url
                                                                   : std::string(kGuard) + url;
}

// Opens the parts of one LocalCache from the ground up.
class Opener {
 public:
  // `disk` may be null.
  Opener(const LocalCacheConfig& config, const Clock& data_clock, const StoreRegistry& registry,
         LocalDisk* disk)
      : config_(config), data_clock_(data_clock), registry_(registry), disk_(disk) {}

  Result<std::unique_ptr<DataPlane>> open_metadata_plane() {
    // Only to refuse what could not be opened either if bytes were moved.
    TIERCEL_TRY(open_store());
    MetadataDataPlaneOptions options;
    options.rank_count = rank_count();
    options.with_store = config_.cache.with_store;
    return make_metadata_data_plane(options);
  }

  Result<std::unique_ptr<DataPlane>> open_plane(const SlotGeometry& geometry,
                                                std::vector<RankMemory>& ranks) {
    const bool has_layouts = !config_.device_layouts.empty();
    TIERCEL_TRY(has_layouts ? check_ranks("device_layouts", config_.device_layouts.size())
                            : check_ranks("device_memory", config_.device_memory.size()));
    if (config_.rank_host == RankHost::kProcess) {
      if (!has_layouts) return open_process_plane(geometry);
      return Error(Code::kUnsupported,
                   "device_layouts is set, but another process knows no address of them; allowed: "
                   "with rank_host thread only, or ranks of the engine that join (docs/ranks.md)");
    }
    TIERCEL_TRY(
        check_memory_of_ranks(geometry, available_memory(), config_.cache.replicated_slices));
    TIERCEL_TRY_ASSIGN(const Namespace name_space, make_namespace(config_.cache.spec));
    std::vector<std::unique_ptr<RankWorker>> workers;
    for (uint32_t rank = 0; rank < rank_count(); ++rank) {
      RankMemory& memory = ranks.emplace_back();
      TIERCEL_TRY_ASSIGN(memory.copier, make_copier(config_, rank));
      TIERCEL_TRY_ASSIGN(std::unique_ptr<Store> store, open_store());
      ArenaOptions arena;
      if (store && store->wants_shared_memory()) arena.kind = ArenaKind::kMemfd;
      arena.huge_pages = config_.huge_pages;
      arena.prefault = config_.prefault;
      const bool shares_memory = config_.cache.replicated_slices && rank > 0;
      if (!shares_memory) {
        TIERCEL_TRY_ASSIGN(memory.arena, Arena::create(geometry.tier_bytes(rank), arena));
      }
      Arena& host = shares_memory ? *ranks.front().arena : *memory.arena;
      const std::span<std::byte> host_memory = host.memory().first(geometry.tier_bytes(rank));
      std::unique_ptr<RankDisk> disk;
      if (disk_ != nullptr && rank < disk_->rank_count()) {
        TIERCEL_TRY_ASSIGN(disk, disk_->make_disk(rank, host_memory, data_clock_));
      }
      TIERCEL_TRY_ASSIGN(workers.emplace_back(),
                         RankWorker::create(worker_options(rank, name_space), geometry, host_memory,
                                            memory.copier.get(), std::move(store), data_clock_,
                                            std::move(disk), host.fd()));
    }
    return make_in_process_data_plane(std::move(workers), data_clock_);
  }

 private:
  // The ranks map their memory themselves.
  Result<std::unique_ptr<DataPlane>> open_process_plane(const SlotGeometry& geometry) {
    TIERCEL_TRY(check_ranks("device_fds", config_.device_fds.size()));
    TIERCEL_TRY_ASSIGN(const Namespace name_space, make_namespace(config_.cache.spec));
    // To refuse a wrong URL now: a rank that cannot open its store says so only when it starts.
    TIERCEL_TRY(open_store());
    std::vector<ProcessRank> ranks;
    for (uint32_t index = 0; index < rank_count(); ++index) {
      ProcessRank& rank = ranks.emplace_back();
      rank.worker = worker_options(index, name_space);
      rank.device_fd = config_.device_fds[index];
      if (disk_ != nullptr && index < disk_->rank_count()) {
        rank.disk_data_fd = disk_->files(index).data.get();
        rank.disk_metadata_fd = disk_->files(index).metadata.get();
        rank.disk = config_.disk;
      }
      for (size_t group = 0; group < config_.device_memory[index].size(); ++group) {
        const uint64_t bytes = config_.device_memory[index][group].size();
        rank.device_groups.push_back(
            {rank.device_bytes,
             static_cast<uint32_t>(bytes / config_.cache.payload_bytes[group][index])});
        rank.device_bytes += bytes;
      }
    }
    ProcessPlaneOptions options;
    options.store_url = config_.store_url.empty() ? "" : guarded_url(config_.store_url);
    options.huge_pages = config_.huge_pages;
    options.prefault = config_.prefault;
    options.logger = config_.logger;
    options.share_memory = config_.cache.replicated_slices;
    options.backoff = config_.rank_backoff;
    options.backoff_max = config_.rank_backoff * 100;
    options.restarts_max = config_.rank_restarts_max;
    options.program = config_.rank_program;
    if (options.program.empty()) {
      TIERCEL_TRY_ASSIGN(options.program, rank_program_beside_this());
    }
    TIERCEL_TRY_ASSIGN(auto plane,
                       ProcessDataPlane::create(geometry, std::move(ranks), data_clock_, options));
    Duration limit = kStartTimeout;
    for (uint32_t rank = 0; rank < rank_count() && config_.prefault; ++rank) {
      limit += touch_allowance(geometry.tier_bytes(rank));
    }
    TIERCEL_TRY(plane->wait_until_up(data_clock_.now() + limit));
    return std::unique_ptr<DataPlane>(std::move(plane));
  }

  Status check_ranks(std::string_view name, size_t count) const {
    if (count == rank_count()) return {};
    return Error(Code::kInvalid, std::string(name) + " has " + std::to_string(count) +
                                     " ranks; allowed: exactly " + std::to_string(rank_count()));
  }

  RankWorkerOptions worker_options(uint32_t rank, const Namespace& name_space) const {
    RankWorkerOptions worker;
    worker.rank = rank;
    worker.slice = config_.cache.replicated_slices
                       ? Slice::all()
                       : Slice{static_cast<uint16_t>(rank), static_cast<uint16_t>(rank_count())};
    worker.name_space = name_space;
    worker.writer_epoch = config_.writer_epoch;
    worker.verify = config_.verify;
    worker.disk_puts_max =
        config_.disk.queue_depth;  // half of the operations: the rest is for gets
    return worker;
  }

  uint32_t rank_count() const {
    return static_cast<uint32_t>(config_.cache.payload_bytes.front().size());
  }

  // Null if there is none.
  Result<std::unique_ptr<Store>> open_store() {
    if (config_.store_url.empty()) return std::unique_ptr<Store>();
    return registry_.open(config_.store_url, StoreContext{data_clock_}, "guard");
  }

  const LocalCacheConfig& config_;
  const Clock& data_clock_;
  const StoreRegistry& registry_;
  LocalDisk* const disk_;
};

Status check_disk(const LocalCacheConfig& config) {
  if (config.disk.path.empty()) return {};
  if (config.metadata_only) {
    return Error(Code::kInvalid,
                 "disk.path is set, but metadata_only moves no bytes; allowed: one of the two");
  }
  return {};
}

}  // namespace

std::string_view to_string(RankHost host) {
  switch (host) {
    case RankHost::kThread:
      return "thread";
    case RankHost::kProcess:
      return "process";
  }
  return "unknown";
}

std::shared_ptr<StoreRegistry> make_store_registry() {
  auto registry = std::make_shared<StoreRegistry>();
  register_all_stores(*registry);
  return registry;
}

Result<std::unique_ptr<LocalCache>> LocalCache::open(const LocalCacheConfig& config,
                                                     const Clock& clock,
                                                     std::shared_ptr<StoreRegistry> registry) {
  LocalCacheConfig used = config;
  used.cache.with_store = !config.store_url.empty();
  TIERCEL_TRY(used.cache.validate());
  if (registry == nullptr) registry = make_store_registry();
  const Clock& data_clock = used.data_clock == nullptr ? clock : *used.data_clock;
  TIERCEL_TRY_ASSIGN(const SlotGeometry geometry, host_geometry(used.cache));

  TIERCEL_TRY(check_disk(used));
  std::unique_ptr<LocalDisk> disk;
  if (!used.disk.path.empty()) {
    TIERCEL_TRY_ASSIGN(disk, LocalDisk::open(used.disk, used.cache));
  }
  Opener opener(used, data_clock, *registry, disk.get());
  std::vector<RankMemory> ranks;
  TIERCEL_TRY_ASSIGN(std::unique_ptr<DataPlane> plane, used.metadata_only
                                                           ? opener.open_metadata_plane()
                                                           : opener.open_plane(geometry, ranks));
  TIERCEL_TRY_ASSIGN(std::unique_ptr<Cache> cache,
                     CacheFactory::create(Protections{}, used.cache, *plane, clock,
                                          disk == nullptr ? nullptr : &disk->parts()));
  if (disk != nullptr) disk->forget_contents();
  return std::unique_ptr<LocalCache>(
      std::make_unique<LocalCacheObject>(std::move(registry), std::move(disk), std::move(ranks),
                                         std::move(plane), std::move(cache), clock, data_clock));
}

}  // namespace tiercel
