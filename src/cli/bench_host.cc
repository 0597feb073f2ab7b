// SPDX-License-Identifier: Apache-2.0
//
// The host tier as the rank worker moves it, frames and checksums included, against memcpy of the
// same bytes between the same places with the same threads.
#include <algorithm>
#include <array>
#include <cstring>
#include <latch>
#include <thread>

#include <fmt/core.h>

#include "base/arena.h"
#include "base/quantity.h"
#include "base/thread.h"
#include "cli/bench.h"
#include "cli/bench_keys.h"
#include "cli/bench_measure.h"
#include "transfer/rank_worker.h"

namespace tiercel {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr uint32_t kLaneCount = 2;
constexpr uint64_t kLargeBlockFactor = 4;
constexpr uint32_t kOpsPerStep = 16;
constexpr uint32_t kTokens = 16;

// Host tier, device memory and worker that one thread uses.
class Lane {
 public:
  static Result<std::unique_ptr<Lane>> create(uint64_t block_bytes, uint32_t block_count,
                                              const Clock& clock) {
    TIERCEL_TRY_ASSIGN(SlotGeometry geometry,
                       SlotGeometry::for_blocks({{block_bytes}}, block_count, 1));
    ArenaOptions arena;
    arena.prefault = true;
    auto lane = std::unique_ptr<Lane>(new Lane(std::move(geometry), block_bytes, block_count));
    TIERCEL_TRY_ASSIGN(lane->host_, Arena::create(lane->geometry_.tier_bytes(0), arena));
    TIERCEL_TRY_ASSIGN(lane->device_, Arena::create(block_bytes * block_count, arena));
    const std::span<std::byte> device = lane->device_->memory().first(block_bytes * block_count);
    bench_fill(device, block_bytes, 512);
    TIERCEL_TRY_ASSIGN(ContiguousCopier copier,
                       ContiguousCopier::create({ContiguousGroupMemory{device, block_bytes}}));
    lane->copier_.emplace(std::move(copier));
    TIERCEL_TRY_ASSIGN(
        lane->worker_,
        RankWorker::create(RankWorkerOptions{}, lane->geometry_,
                           lane->host_->memory().first(lane->geometry_.tier_bytes(0)),
                           &*lane->copier_, nullptr, clock));
    return lane;
  }

  // All blocks through the worker; false if one of them did not end well.
  bool move(OpKind kind) {
    bool ok = true;
    std::array<Completion, kOpsPerStep> completions;
    for (uint32_t block = 0; block < block_count_;) {
      const uint32_t count = std::min(kOpsPerStep, block_count_ - block);
      std::array<BlockOp, kOpsPerStep> ops;
      for (uint32_t i = 0; i < count; ++i, ++block) {
        ops[i].job = JobId(1);
        ops[i].item = i;
        ops[i].key = keys_[block];
        ops[i].slot = SlotId(block);
        ops[i].device_block = DeviceBlockId(block);
        ops[i].token_count = kTokens;
        ops[i].kind = kind;
      }
      worker_->submit(std::span(ops).first(count));
      for (size_t taken = 0; taken < count;) {
        worker_->progress(kOpsPerStep);
        const size_t now = worker_->take(completions);
        for (size_t i = 0; i < now; ++i) ok = ok && completions[i].code == Code::kOk;
        taken += now;
      }
    }
    return ok;
  }

  // The same bytes from and to the same places.
  void copy(OpKind kind) {
    for (uint32_t block = 0; block < block_count_; ++block) {
      std::byte* slot = host_->memory().data() + *geometry_.offset(SlotId(block), GroupId(0), 0);
      std::byte* device = device_->memory().data() + block * block_bytes_;
      if (kind == OpKind::kSave) {
        std::memcpy(slot, device, block_bytes_);
      } else {
        std::memcpy(device, slot, block_bytes_);
      }
    }
  }

  uint64_t bytes() const { return block_bytes_ * block_count_; }
  PageKind pages() const { return host_->pages(); }

 private:
  Lane(SlotGeometry geometry, uint64_t block_bytes, uint32_t block_count)
      : geometry_(std::move(geometry)),
        block_bytes_(block_bytes),
        block_count_(block_count),
        keys_(bench_keys(block_count, block_bytes)) {}

  const SlotGeometry geometry_;
  const uint64_t block_bytes_;
  const uint32_t block_count_;
  const std::vector<BlockKey> keys_;
  std::unique_ptr<Arena> host_, device_;
  std::optional<ContiguousCopier> copier_;
  std::unique_ptr<RankWorker> worker_;
};

using Lanes = std::array<std::unique_ptr<Lane>, kLaneCount>;

// GiB/s over all lanes, from the first begin to the last end; 0 if a thread could not be had.
template <typename Work>
double speed_of(const Clock& clock, Lanes& lanes, uint32_t thread_count, Work&& work) {
  uint64_t bytes = 0;
  for (const auto& lane : lanes) bytes += lane->bytes();
  std::array<TimePoint, kLaneCount> begins;
  std::array<TimePoint, kLaneCount> ends;
  if (thread_count == 1) {
    begins[0] = clock.now();
    for (auto& lane : lanes) work(*lane);
    return static_cast<double>(bytes) / kGiB /
           std::chrono::duration<double>(clock.now() - begins[0]).count();
  }
  std::latch ready(kLaneCount);
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kLaneCount; ++i) {
    auto thread = start_thread("bench-host", [&, i] {
      ready.arrive_and_wait();
      begins[i] = clock.now();
      work(*lanes[i]);
      ends[i] = clock.now();
    });
    if (!thread) {
      ready.count_down(kLaneCount - i);
      break;
    }
    threads.push_back(*std::move(thread));
  }
  for (std::thread& thread : threads) thread.join();
  if (threads.size() < kLaneCount) return 0;
  const TimePoint begin = *std::min_element(begins.begin(), begins.end());
  const TimePoint end = *std::max_element(ends.begin(), ends.end());
  return static_cast<double>(bytes) / kGiB / std::chrono::duration<double>(end - begin).count();
}

Status measure(const BenchOptions& options, const BenchContext& context, uint64_t block_bytes,
               BenchFigures& figures) {
  const auto block_count =
      static_cast<uint32_t>(std::max<uint64_t>(1, options.host_bytes / kLaneCount / block_bytes));
  Lanes lanes;
  for (auto& lane : lanes) {
    if (context.stopped()) return {};
    TIERCEL_TRY_ASSIGN(lane, Lane::create(block_bytes, block_count, context.clock));
  }
  for (const uint32_t threads : {1u, kLaneCount}) {
    for (const OpKind kind : {OpKind::kSave, OpKind::kLoad}) {
      if (context.stopped()) return {};
      std::atomic<bool> all_ok{true};
      const Pairs pairs = in_turns(
          options.runs, context,
          [&] {
            return speed_of(context.clock, lanes, threads, [&](Lane& lane) {
              if (!lane.move(kind)) all_ok = false;
            });
          },
          [&] {
            return speed_of(context.clock, lanes, threads, [&](Lane& lane) { lane.copy(kind); });
          });
      if (!all_ok) {
        return Error(Code::kInternal, "a block did not come through the rank worker as it went in");
      }
      figures.push_back(paired_figure(
          fmt::format("host.{}.{}.{}_thread", kind == OpKind::kSave ? "put" : "get",
                      exact_bytes(block_bytes), threads),
          "GiB/s", pairs, threads == 1 ? "ratio at least 0.8" : "ratio at least 0.95"));
      auto& conditions = figures.back().conditions;
      conditions.emplace_back("limit_is", "memcpy of the same blocks with the same threads");
      conditions.emplace_back("working_set",
                              format_bytes(uint64_t{2} * kLaneCount * block_count * block_bytes));
      conditions.emplace_back("arena", lanes[0]->pages() == PageKind::kTransparentHuge
                                           ? "anonymous, transparent huge pages, pre-faulted"
                                           : "anonymous, ordinary pages, pre-faulted");
    }
  }
  return {};
}

}  // namespace

Status check_bench_host(const BenchOptions& options, const BenchContext& context) {
  // Each lane has one block at least; the device's part comes on top, and frames.
  const uint64_t least = kLaneCount * kLargeBlockFactor * options.host_block_bytes;
  const auto needed = [](uint64_t bytes) { return 2 * bytes + bytes / 64; };
  TIERCEL_TRY(
      context.check_bytes_fit("host_bytes", options.host_bytes, needed(options.host_bytes)));
  return context.check_bytes_fit("host_block_bytes", options.host_block_bytes, needed(least));
}

Result<BenchFigures> bench_host(const BenchOptions& options, const BenchContext& context) {
  BenchFigures figures;
  for (const uint64_t block_bytes :
       {options.host_block_bytes, kLargeBlockFactor * options.host_block_bytes}) {
    if (context.stopped()) break;
    TIERCEL_TRY(measure(options, context, block_bytes, figures));
  }
  return figures;
}

}  // namespace tiercel
