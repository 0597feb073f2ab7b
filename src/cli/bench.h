// SPDX-License-Identifier: Apache-2.0
//
// `tiercel bench`: what the parts cost, each beside the plain limit that it is held against (bare
// SHA-256, memcpy, a hash map, fio), measured in the same run and in turns.
//
// A subject is one file with one function; bench_subjects() lists them. Nothing here judges:
// figures carry what they should reach as a condition, and docs/performance.md says what was
// reached.
//
// Threads: the caller's, but for the `host` subject, which starts as many as it measures.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/status.h"

#include "base/memory_limit.h"
#include "cli/bench_options.h"

namespace tiercel {

// One measured quantity. The same fields stand in the JSON, but for value_count.
struct BenchFigure {
  std::string name;  // subject, then what is measured: "index.find_all.1000000"
  double value = 0;  // median over the runs
  std::string unit;
  uint64_t value_count = 0;     // measured values, of which it is made
  std::optional<double> limit;  // median of the plain limit, in the same unit
  std::optional<double> ratio;  // median of value / limit over the pairs of runs
  std::vector<std::pair<std::string, std::string>> conditions;  // spread, sizes, what to reach
};

struct BenchContext {
  const Clock& clock;
  MemoryLimit memory;
  const std::atomic<bool>* stop = nullptr;       // asks for an early end
  std::function<void(const std::string&)> note;  // says what is left out, and why; may be empty

  bool stopped() const { return stop != nullptr && stop->load(); }

  // kNoSpace if an index or tier of that many blocks, as the option says, takes more than there is.
  Status check_blocks_fit(std::string_view option, uint64_t blocks, uint64_t bytes_per_block) const;
  // The same for a size, with all that comes with it.
  Status check_bytes_fit(std::string_view option, uint64_t bytes, uint64_t needed) const;
};

using BenchFigures = std::vector<BenchFigure>;
using BenchFunction = Result<BenchFigures> (*)(const BenchOptions& options,
                                               const BenchContext& context);

// What can be refused before anything runs: kNoSpace if the sizes do not fit into memory, kInvalid.
using BenchCheck = Status (*)(const BenchOptions& options, const BenchContext& context);
Status check_bench_checksum(const BenchOptions& options, const BenchContext& context);
Status check_bench_index(const BenchOptions& options, const BenchContext& context);
Status check_bench_host(const BenchOptions& options, const BenchContext& context);
Status check_bench_copy(const BenchOptions& options, const BenchContext& context);
Status check_bench_cache(const BenchOptions& options, const BenchContext& context);
// Also kNoSpace if the files do not fit onto the disk.
Status check_bench_disk(const BenchOptions& options, const BenchContext& context);
Status check_bench_mooncake(const BenchOptions& options, const BenchContext& context);

// After its check. A stop ends it early.
Result<BenchFigures> bench_key(const BenchOptions& options, const BenchContext& context);
Result<BenchFigures> bench_checksum(const BenchOptions& options, const BenchContext& context);
Result<BenchFigures> bench_index(const BenchOptions& options, const BenchContext& context);
Result<BenchFigures> bench_host(const BenchOptions& options, const BenchContext& context);
Result<BenchFigures> bench_copy(const BenchOptions& options, const BenchContext& context);
Result<BenchFigures> bench_ring(const BenchOptions& options, const BenchContext& context);
Result<BenchFigures> bench_cache(const BenchOptions& options, const BenchContext& context);
Result<BenchFigures> bench_engine(const BenchOptions& options, const BenchContext& context);
Result<BenchFigures> bench_disk(const BenchOptions& options, const BenchContext& context);
// Nothing, with a note, if options.mooncake names no pool.
Result<BenchFigures> bench_mooncake(const BenchOptions& options, const BenchContext& context);

struct BenchSubject {
  std::string_view name;
  BenchCheck check;
  BenchFunction run;
};
std::span<const BenchSubject> bench_subjects();

// What `subject` measures; figures that a stop has cut short are left out.
Result<BenchFigures> run_bench_subject(const BenchSubject& subject, const BenchOptions& options,
                                       const BenchContext& context);

// For people, one line a figure, and its conditions below it.
std::string bench_text(const BenchFigures& figures);
// A list of {name, value, unit, limit, ratio, conditions}; limit and ratio are null where there is
// none.
std::string bench_json(const BenchFigures& figures);

}  // namespace tiercel
