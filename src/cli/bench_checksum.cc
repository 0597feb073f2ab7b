// SPDX-License-Identifier: Apache-2.0
//
// CRC32C and copies that take it on the way, against memcpy of the same bytes.
#include <algorithm>
#include <cstring>

#include <fmt/core.h>

#include "base/arena.h"
#include "base/checksum.h"
#include "base/quantity.h"
#include "cli/bench.h"
#include "cli/bench_measure.h"

namespace tiercel {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
// Bytes of one run: enough for the clock.
constexpr size_t kRunBytes = size_t{64} << 20;

// Two areas of equal size: what is read, and where it is copied to.
struct Areas {
  std::unique_ptr<Arena> source, target;
};

Result<Areas> make_areas(size_t bytes) {
  ArenaOptions options;
  options.prefault = true;
  Areas areas;
  TIERCEL_TRY_ASSIGN(areas.source, Arena::create(bytes, options));
  TIERCEL_TRY_ASSIGN(areas.target, Arena::create(bytes, options));
  return areas;
}

// GiB/s of `work` over pieces of `piece_bytes`, often enough for kRunBytes.
template <typename Work>
double speed_of(const Clock& clock, size_t piece_bytes, Work&& work) {
  const size_t times = std::max<size_t>(1, kRunBytes / piece_bytes);
  const double seconds = seconds_of(clock, [&] {
    for (size_t i = 0; i < times; ++i) work();
  });
  return static_cast<double>(times * piece_bytes) / kGiB / seconds;
}

}  // namespace

Status check_bench_checksum(const BenchOptions& options, const BenchContext& context) {
  return context.check_bytes_fit("checksum_bytes", options.checksum_bytes,
                                 2 * options.checksum_bytes);
}

Result<BenchFigures> bench_checksum(const BenchOptions& options, const BenchContext& context) {
  std::vector<size_t> sizes;
  for (const size_t size : {size_t{4} << 10, size_t{64} << 10, size_t{1} << 20}) {
    if (size < options.checksum_bytes) sizes.push_back(size);
  }
  sizes.push_back(options.checksum_bytes);
  TIERCEL_TRY_ASSIGN(const Areas areas, make_areas(options.checksum_bytes));

  BenchFigures figures;
  for (const size_t size : sizes) {
    const std::span<std::byte> source = areas.source->memory().first(size);
    const std::span<std::byte> target = areas.target->memory().first(size);
    const auto copy = [&] {
      return speed_of(context.clock, size, [&] {
        std::memcpy(target.data(), source.data(), size);
        keep(target.data());
      });
    };
    const auto add = [&](const char* name, auto&& work) {
      const auto measured = [&] { return speed_of(context.clock, size, [&] { keep(work()); }); };
      figures.push_back(paired_figure(fmt::format("checksum.{}.{}", name, exact_bytes(size)),
                                      "GiB/s", in_turns(options.runs, context, measured, copy),
                                      ""));
      figures.back().conditions.emplace_back("limit_is", "memcpy of the same bytes");
      figures.back().conditions.emplace_back("place", "the same pieces again and again");
    };
    add("crc32c", [&] { return crc32c(source); });
    add("crc32c_portable", [&] { return crc32c_portable(source); });
    add("copy_with_crc32c", [&] { return copy_with_crc32c(source, target); });
  }
  return figures;
}

}  // namespace tiercel
