// SPDX-License-Identifier: Apache-2.0
//
// The disk tier as the rank worker moves it, frames, checksums and records included, against fio
// with the same slots: io_uring, direct, the same padded length, the same depth, on the same file
// system, writing in order and reading at random.
#include "cli/bench_disk.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/core.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include "base/arena.h"
#include "base/error_text.h"
#include "base/poll_timeout.h"
#include "base/quantity.h"
#include "base/random.h"
#include "cli/bench_fio.h"
#include "cli/bench_keys.h"
#include "cli/bench_measure.h"
#include "tier/disk/disk_folder.h"
#include "tier/disk/disk_geometry.h"
#include "transfer/rank_disk_files.h"
#include "transfer/rank_loop.h"
#include "transfer/rank_worker.h"

namespace tiercel {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr double kGB = 1e9;
constexpr uint32_t kOpsPerStep = 64;
constexpr uint32_t kTokens = 16;
// Room that the file system keeps for itself, and the records.
constexpr uint64_t kSpareBytes = uint64_t{64} << 20;

// CPU time of this process so far, user and system, all threads.
double own_cpu_s() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// A rank with its disk; host slots take part in turn, each with one operation at a time.
class DiskLane {
 public:
  static Result<std::unique_ptr<DiskLane>> create(const std::string& path, uint64_t payload_bytes,
                                                  const BenchOptions& options, const Clock& clock) {
    DiskFolderOptions folder_options;
    folder_options.path = path;
    folder_options.bytes = options.disk_file_bytes;
    folder_options.payload_bytes = {{payload_bytes}};
    folder_options.preallocate = true;
    TIERCEL_TRY_ASSIGN(std::unique_ptr<DiskFolder> folder, DiskFolder::open(folder_options));
    TIERCEL_TRY(folder->read_contents(Namespace{}, false));
    const uint32_t host_slots = 2 * options.disk_queue_depth;
    TIERCEL_TRY_ASSIGN(SlotGeometry host,
                       SlotGeometry::for_blocks({{payload_bytes}}, host_slots, 1));
    std::unique_ptr<DiskLane> lane(
        new DiskLane(std::move(folder), std::move(host), payload_bytes, host_slots, clock));
    TIERCEL_TRY(lane->start(options.disk_queue_depth));
    return lane;
  }

  // Each slot of the file once; false if one of them did not end well.
  bool put() {
    std::vector<uint32_t> order(slot_count());
    std::iota(order.begin(), order.end(), 0u);
    return pass(OpKind::kDiskPut, order);
  }
  bool get(uint64_t seed) {
    std::vector<uint32_t> order(slot_count());
    std::iota(order.begin(), order.end(), 0u);
    Random random(seed);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    return pass(OpKind::kDiskGet, order);
  }

  uint32_t slot_count() const { return folder_->geometry().slot_count_max(); }
  uint64_t bytes() const { return payload_bytes_ * slot_count(); }
  const std::string& way() const { return way_; }

 private:
  DiskLane(std::unique_ptr<DiskFolder> folder, SlotGeometry host, uint64_t payload_bytes,
           uint32_t host_slots, const Clock& clock)
      : clock_(clock),
        folder_(std::move(folder)),
        host_geometry_(std::move(host)),
        payload_bytes_(payload_bytes),
        keys_(bench_keys(host_slots, payload_bytes)),
        key_in_host_(host_slots),
        key_on_disk_(folder_->geometry().slot_count_max()) {}

  Status start(uint32_t depth) {
    ArenaOptions arena;
    arena.prefault = true;
    TIERCEL_TRY_ASSIGN(host_, Arena::create(host_geometry_.tier_bytes(0), arena));
    TIERCEL_TRY_ASSIGN(device_, Arena::create(payload_bytes_ * keys_.size(), arena));
    const std::span<std::byte> device = device_->memory().first(payload_bytes_ * keys_.size());
    bench_fill(device, payload_bytes_, sizeof(uint64_t));
    TIERCEL_TRY_ASSIGN(ContiguousCopier copier,
                       ContiguousCopier::create({ContiguousGroupMemory{device, payload_bytes_}}));
    copier_.emplace(std::move(copier));
    TIERCEL_TRY_ASSIGN(files_, folder_->files(0));
    DiskConfig config;
    config.queue_depth = depth;
    const std::span<std::byte> host = host_->memory().first(host_geometry_.tier_bytes(0));
    TIERCEL_TRY_ASSIGN(std::unique_ptr<RankDisk> disk,
                       open_rank_disk(config, 0, folder_->geometry(), files_, host, clock_));
    way_ = disk->describe();
    RankWorkerOptions worker;
    worker.disk_puts_max = depth;
    TIERCEL_TRY_ASSIGN(worker_, RankWorker::create(worker, host_geometry_, host, &*copier_, nullptr,
                                                   clock_, std::move(disk)));
    // Frames are made here, once: a put of the disk takes the slot as it stands.
    for (uint32_t slot = 0; slot < keys_.size(); ++slot) key_in_host_[slot] = slot;
    std::vector<uint32_t> blocks(keys_.size());
    std::iota(blocks.begin(), blocks.end(), 0u);
    if (!pass(OpKind::kSave, blocks)) {
      return Error(Code::kInternal, "a block could not be brought into the host tier");
    }
    return {};
  }

  // `places`: slots of the disk, or blocks of the device.
  bool pass(OpKind kind, const std::vector<uint32_t>& places) {
    std::vector<uint32_t> free(keys_.size());
    std::iota(free.rbegin(), free.rend(), 0u);
    bool ok = true;
    std::vector<BlockOp> ops;
    std::array<Completion, kOpsPerStep> completions;
    for (size_t next = 0, done = 0; done < places.size();) {
      ops.clear();
      for (; next < places.size() && !free.empty(); ++next) {
        ops.push_back(make_op(kind, free.back(), places[next]));
        free.pop_back();
      }
      worker_->submit(ops);
      const bool more = worker_->progress(kOpsPerStep);
      size_t taken = 0;
      while (const size_t count = worker_->take(completions)) {
        for (const Completion& one : std::span(completions).first(count)) {
          ok = ok && one.code == Code::kOk;
          free.push_back(one.item);
        }
        taken += count;
      }
      done += taken;
      if (taken == 0 && !more) wait();
    }
    return ok;
  }

  BlockOp make_op(OpKind kind, uint32_t host_slot, uint32_t place) {
    BlockOp op;
    op.job = JobId(1);
    op.item = host_slot;
    op.slot = SlotId(host_slot);
    op.token_count = kTokens;
    op.kind = kind;
    if (kind == OpKind::kSave) {
      op.device_block = DeviceBlockId(place);
      // Saves come first and go through the slots in whatever order.
      key_in_host_[host_slot] = place;
    } else {
      op.disk_slot = SlotId(place);
      if (kind == OpKind::kDiskPut) {
        key_on_disk_[place] = key_in_host_[host_slot];
      } else {
        key_in_host_[host_slot] = key_on_disk_[place];
      }
    }
    op.key = keys_[key_in_host_[host_slot]];
    return op;
  }

  void wait() const {
    pollfd one{.fd = worker_->disk_fd(), .events = POLLIN, .revents = 0};
    ::poll(&one, 1, poll_timeout_ms(worker_->next_due(), clock_));
  }

  const Clock& clock_;
  const std::unique_ptr<DiskFolder> folder_;
  const SlotGeometry host_geometry_;
  const uint64_t payload_bytes_;
  const std::vector<BlockKey> keys_;
  std::vector<uint32_t> key_in_host_;  // [host slot], index into keys_
  std::vector<uint32_t> key_on_disk_;  // [disk slot]
  std::unique_ptr<Arena> host_, device_;
  std::optional<ContiguousCopier> copier_;
  DiskRankFiles files_;
  std::string way_;
  std::unique_ptr<RankWorker> worker_;
};

// One size: the lane's file and fio's beside it.
class SizeBench {
 public:
  SizeBench(const BenchOptions& options, const BenchContext& context, uint64_t payload_bytes,
            const BenchFolder& folder, DiskLane& lane)
      : options_(options), context_(context), payload_bytes_(payload_bytes), lane_(lane) {
    job_.file = folder.path("fio");
    job_.request_bytes = slot_stride_bytes(payload_bytes);
    job_.request_count = lane.slot_count();
    job_.depth = options.disk_queue_depth;
    job_.register_memory = lane.way().find("registered buffers") != std::string::npos;
  }

  Status run(BenchFigures& figures) {
    // Both files are written once in full before anything is measured.
    if (!lane_.put()) return failed();
    limit_speed(FioOrder::kWriteInOrder);
    for (const bool is_put : {true, false}) {
      if (context_.stopped()) return {};
      TIERCEL_TRY(measure(is_put, figures));
    }
    return {};
  }

 private:
  static Status failed() {
    return Error(Code::kInternal, "a block did not come through the disk as it went in");
  }

  Status measure(bool is_put, BenchFigures& figures) {
    bool ok = true;
    std::vector<double> cpu;
    limit_cpu_.clear();
    const auto measured = [&] {
      const double cpu_before = own_cpu_s();
      const double seconds = seconds_of(
          context_.clock, [&] { ok = (is_put ? lane_.put() : lane_.get(++seed_)) && ok; });
      cpu.push_back((own_cpu_s() - cpu_before) * kGB / static_cast<double>(lane_.bytes()));
      return static_cast<double>(lane_.bytes()) / kGiB / seconds;
    };
    const FioOrder order = is_put ? FioOrder::kWriteInOrder : FioOrder::kReadAtRandom;
    const Pairs pairs =
        in_turns(options_.runs, context_, measured, [&] { return limit_speed(order); });
    if (!ok) return failed();
    const std::string name =
        fmt::format("disk.{}.{}", is_put ? "put" : "get", exact_bytes(payload_bytes_));
    if (no_limit_.empty()) {
      figures.push_back(paired_figure(name, "GiB/s", pairs, "ratio at least 0.9"));
    } else {
      figures.push_back(plain_figure(name, "GiB/s", pairs.measured, ""));
    }
    auto& conditions = figures.back().conditions;
    conditions.emplace_back(
        "limit_is", no_limit_.empty()
                        ? fmt::format("fio, io_uring, direct, {}huge pages, {} of {}, {} at once",
                                      job_.register_memory ? "registered buffers, " : "",
                                      is_put ? "writing in order" : "reading at random",
                                      exact_bytes(job_.request_bytes), job_.depth)
                        : "none: " + no_limit_);
    conditions.emplace_back("includes", is_put ? "frame checked, slot and record written; not the "
                                                 "checksum, which the save made"
                                               : "frame and checksum of the payload checked");
    conditions.emplace_back("way", lane_.way());
    conditions.emplace_back("queue_depth", std::to_string(options_.disk_queue_depth));
    conditions.emplace_back("file",
                            fmt::format("{}, preallocated and written once before, on both "
                                        "sides: overwriting, not allocation; never synced",
                                        format_bytes(job_.request_bytes * job_.request_count)));
    conditions.emplace_back("cpu_s_per_GB", fmt::format("{:.3f}", spread_of(cpu).median));
    if (no_limit_.empty()) {
      conditions.emplace_back("limit_cpu_s_per_GB",
                              fmt::format("{:.3f}", spread_of(limit_cpu_).median));
    }
    return {};
  }

  // In payload, as ours; 0 if there is no fio.
  double limit_speed(FioOrder order) {
    if (!no_limit_.empty()) return 0;
    job_.order = order;
    job_.seed = ++seed_;
    const Result<FioFigures> figures = run_fio(job_);
    if (!figures) {
      // After Ctrl-C it has been stopped as well.
      if (!context_.stopped()) no_limit_ = figures.error().message();
      return 0;
    }
    const double share =
        static_cast<double>(payload_bytes_) / static_cast<double>(job_.request_bytes);
    limit_cpu_.push_back(figures->cpu_s * kGB / static_cast<double>(lane_.bytes()));
    return figures->bytes_per_s * share / kGiB;
  }

  const BenchOptions& options_;
  const BenchContext& context_;
  const uint64_t payload_bytes_;
  DiskLane& lane_;
  FioJob job_;
  std::string no_limit_;  // why there is none
  std::vector<double> limit_cpu_;
  uint64_t seed_ = 0;
};

uint64_t largest_of(const std::vector<uint64_t>& sizes) {
  return *std::max_element(sizes.begin(), sizes.end());
}

}  // namespace

Result<BenchFolder> BenchFolder::create(const std::string& parent) {
  std::string path = parent + "/tiercel-bench-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) {
    return Error(Code::kUnavailable, "disk_path is " + quoted_path(parent) +
                                         ", where no folder can be made: " + error_text(errno));
  }
  return BenchFolder(std::move(path));
}

BenchFolder::~BenchFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

Status check_bench_disk(const BenchOptions& options, const BenchContext& context) {
  struct statvfs file_system {};
  if (::statvfs(options.disk_path.c_str(), &file_system) != 0) {
    return Error(Code::kInvalid, "disk_path is " + quoted_path(options.disk_path) +
                                     ", which cannot be used: " + error_text(errno));
  }
  const uint64_t free_bytes = uint64_t{file_system.f_bavail} * file_system.f_frsize;
  // fio has a file of its own. The folder of the reopening is sparse but for its records.
  const uint64_t needed = std::max(2 * options.disk_file_bytes,
                                   uint64_t{options.disk_reopen_blocks} * kDiskRecordBytes) +
                          kSpareBytes;
  if (needed > free_bytes) {
    return Error(Code::kNoSpace,
                 fmt::format("disk_file_bytes is {}, which takes {} in all; {} has {} free",
                             format_bytes(options.disk_file_bytes), format_bytes(needed),
                             quoted_path(options.disk_path), format_bytes(free_bytes)));
  }
  for (const uint64_t size : options.disk_sizes) {
    const auto geometry = new_disk_geometry({{size}}, options.disk_file_bytes);
    if (!geometry) {
      return Error(Code::kInvalid, fmt::format("disk_file_bytes is {}, too little for {} of "
                                               "disk_sizes: {}",
                                               format_bytes(options.disk_file_bytes),
                                               exact_bytes(size), geometry.error().message()));
    }
  }
  // Host slots and the device's blocks that they are made of.
  return context.check_bytes_fit(
      "disk_sizes", largest_of(options.disk_sizes),
      uint64_t{4} * options.disk_queue_depth * slot_stride_bytes(largest_of(options.disk_sizes)));
}

Result<BenchFigures> bench_disk(const BenchOptions& options, const BenchContext& context) {
  BenchFigures figures;
  for (const uint64_t size : options.disk_sizes) {
    if (context.stopped()) return figures;
    TIERCEL_TRY_ASSIGN(const BenchFolder folder, BenchFolder::create(options.disk_path));
    TIERCEL_TRY_ASSIGN(std::unique_ptr<DiskLane> lane,
                       DiskLane::create(folder.path("tier"), size, options, context.clock));
    TIERCEL_TRY(SizeBench(options, context, size, folder, *lane).run(figures));
  }
  if (context.stopped()) return figures;
  TIERCEL_TRY_ASSIGN(const BenchFigures reopen, bench_disk_reopen(options, context));
  figures.insert(figures.end(), reopen.begin(), reopen.end());
  return figures;
}

}  // namespace tiercel
