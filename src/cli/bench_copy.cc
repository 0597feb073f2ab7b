// SPDX-License-Identifier: Apache-2.0
//
// Gather and scatter between paged KV tensors and payloads, checksum included, against memcpy of
// the same bytes block by block. The layout is the worst that engines have: K and V interleaved run
// by run, so that neither a block nor a part of it is contiguous beyond one run.
#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/core.h>

#include "tiercel/device_layout.h"

#include "base/arena.h"
#include "base/quantity.h"
#include "cli/bench.h"
#include "cli/bench_keys.h"
#include "cli/bench_measure.h"
#include "transfer/layout_copier_cpu.h"

namespace tiercel {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr size_t kBlocksPerCall = 16;
constexpr uint64_t kLeastRunBytes = 256;
constexpr uint64_t kReachedRunBytes = uint64_t{16} << 10;

// Device memory, and as much for payloads.
struct Areas {
  std::unique_ptr<Arena> device, payload;
};

// Half made after a stop.
Result<Areas> make_areas(uint64_t bytes, const BenchContext& context) {
  ArenaOptions options;
  options.prefault = true;
  Areas areas;
  TIERCEL_TRY_ASSIGN(areas.device, Arena::create(bytes, options));
  if (context.stopped()) return areas;
  TIERCEL_TRY_ASSIGN(areas.payload, Arena::create(bytes, options));
  bench_fill(areas.device->memory().first(bytes), bytes, 512);
  return areas;
}

// Blocks of 2 × `runs` runs: K, V, K, V, …
DeviceGroup interleaved_group(std::span<std::byte> memory, uint32_t block_count, uint64_t run_bytes,
                              uint32_t runs) {
  DeviceGroup group;
  group.block_count = block_count;
  DeviceLayer& layer = group.layers.emplace_back();
  for (uint64_t k = 0; k < 2; ++k) {
    DevicePart& part = layer.parts.emplace_back();
    part.memory = memory;
    part.offset_bytes = k * run_bytes;
    part.block_stride_bytes = uint64_t{2} * runs * run_bytes;
    part.run_bytes = run_bytes;
    part.inner = {runs, 2 * run_bytes};
  }
  return group;
}

class Lane {
 public:
  Lane(Areas& areas, CpuLayoutCopier copier)
      : device_(areas.device->memory()),
        payload_(areas.payload->memory()),
        copier_(std::move(copier)),
        block_bytes_(copier_.payload_bytes(GroupId(0))) {
    for (uint32_t i = 0; i < copier_.block_count(GroupId(0)); ++i) {
      copies_.push_back({.block = DeviceBlockId(i), .payload = block_of(payload_, i)});
    }
  }

  double gather(const Clock& clock) { return through(clock, &CpuLayoutCopier::gather); }
  double scatter(const Clock& clock) { return through(clock, &CpuLayoutCopier::scatter); }
  // The same bytes, as blocks that are contiguous at both ends.
  double copy(const Clock& clock, bool to_payload) {
    return speed(clock, [&] {
      for (uint32_t i = 0; i < copies_.size(); ++i) {
        const std::span<std::byte> device = block_of(device_, i);
        const std::span<std::byte> payload = block_of(payload_, i);
        if (to_payload) {
          std::memcpy(payload.data(), device.data(), block_bytes_);
        } else {
          std::memcpy(device.data(), payload.data(), block_bytes_);
        }
      }
    });
  }

  bool ok() const { return ok_; }
  uint64_t bytes() const { return block_bytes_ * copies_.size(); }

 private:
  using Call = Status (CpuLayoutCopier::*)(GroupId, std::span<DeviceCopy>, LayerObserver*);

  std::span<std::byte> block_of(std::span<std::byte> memory, uint64_t block) const {
    return memory.subspan(block * block_bytes_, block_bytes_);
  }

  double through(const Clock& clock, Call call) {
    return speed(clock, [&] {
      for (size_t first = 0; first < copies_.size(); first += kBlocksPerCall) {
        const size_t count = std::min(kBlocksPerCall, copies_.size() - first);
        const Status status =
            (copier_.*call)(GroupId(0), std::span(copies_).subspan(first, count), nullptr);
        ok_ = ok_ && status.has_value();
      }
    });
  }

  template <typename Work>
  double speed(const Clock& clock, Work&& work) const {
    return static_cast<double>(bytes()) / kGiB / seconds_of(clock, work);
  }

  const std::span<std::byte> device_, payload_;
  CpuLayoutCopier copier_;
  const uint64_t block_bytes_;
  std::vector<DeviceCopy> copies_;
  bool ok_ = true;
};

// `run_bytes` fits the block twice.
Status measure(const BenchOptions& options, const BenchContext& context, Areas& areas,
               uint64_t run_bytes, BenchFigures& figures) {
  const auto runs = static_cast<uint32_t>(options.host_block_bytes / (2 * run_bytes));
  const uint64_t block_bytes = uint64_t{2} * runs * run_bytes;
  const auto block_count =
      static_cast<uint32_t>(std::max<uint64_t>(1, options.host_bytes / block_bytes));
  TIERCEL_TRY_ASSIGN(const DeviceLayout layout,
                     DeviceLayout::create({interleaved_group(areas.device->memory(), block_count,
                                                             run_bytes, runs)}));
  TIERCEL_TRY_ASSIGN(CpuLayoutCopier copier, CpuLayoutCopier::create(layout));
  Lane lane(areas, std::move(copier));
  for (const bool gather : {true, false}) {
    if (context.stopped()) return {};
    const Pairs pairs = in_turns(
        options.runs, context,
        [&] { return gather ? lane.gather(context.clock) : lane.scatter(context.clock); },
        [&] { return lane.copy(context.clock, gather); });
    if (!lane.ok()) return Error(Code::kInternal, "the copier refused a block of its own layout");
    figures.push_back(paired_figure(
        fmt::format("copy.{}.{}", gather ? "gather" : "scatter", exact_bytes(run_bytes)), "GiB/s",
        pairs, run_bytes >= kReachedRunBytes ? "ratio at least 0.8" : ""));
    auto& conditions = figures.back().conditions;
    conditions.emplace_back("limit_is", "memcpy of the same bytes, block by block");
    conditions.emplace_back("block", exact_bytes(block_bytes));
    conditions.emplace_back("working_set", format_bytes(2 * lane.bytes()));
  }
  return {};
}

}  // namespace

Status check_bench_copy(const BenchOptions& options, const BenchContext& context) {
  if (options.host_block_bytes < 2 * kLeastRunBytes) {
    return Error(Code::kInvalid,
                 fmt::format("host_block_bytes is {}; allowed here: at least {}, "
                             "two runs of {} bytes",
                             options.host_block_bytes, 2 * kLeastRunBytes, kLeastRunBytes));
  }
  TIERCEL_TRY(context.check_bytes_fit("host_bytes", options.host_bytes, 2 * options.host_bytes));
  return context.check_bytes_fit("host_block_bytes", options.host_block_bytes,
                                 2 * options.host_block_bytes);
}

Result<BenchFigures> bench_copy(const BenchOptions& options, const BenchContext& context) {
  TIERCEL_TRY_ASSIGN(Areas areas,
                     make_areas(std::max(options.host_bytes, options.host_block_bytes), context));
  BenchFigures figures;
  for (uint64_t run_bytes = kLeastRunBytes; run_bytes <= uint64_t{256} << 10; run_bytes *= 4) {
    if (context.stopped() || 2 * run_bytes > options.host_block_bytes) break;
    TIERCEL_TRY(measure(options, context, areas, run_bytes, figures));
  }
  return figures;
}

}  // namespace tiercel
