// SPDX-License-Identifier: Apache-2.0
//
// The Mooncake store as a rank has it against Mooncake's own Python client with the same batches of
// objects of the same stored size; what the way through the sidecar adds to a call; a long
// question; and, in files of their own, a dead pool and the start of a sidecar.
#include "cli/bench_mooncake.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include <fmt/core.h>

#include "base/quantity.h"
#include "base/random.h"
#include "cli/bench_measure.h"
#include "cli/bench_mooncake_lane.h"
#include "tier/slot_geometry.h"

namespace tiercel {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr double kMicrosecondsPerSecond = 1e6;
// A pair of processes that moves bytes runs now faster, now slower by half, for as long as it lives
// (on which processors its threads have come to stand), whoever's it is. So no pair counts for
// long.
constexpr uint32_t kRoundsOfAProcess = 5;
constexpr std::array<uint64_t, 3> kPayloads = {1u << 20, 256u << 10, 64u << 10};
// One message, also of puts.
constexpr uint32_t kHopBlocks = 32;
constexpr uint64_t kHopPayload = 64u << 10;
constexpr uint32_t kQuestionBlocks = 300;
constexpr const char* kUnverified = "ratio_of_means at least 0.95";
constexpr const char* kVerified = "ratio_of_means at least 0.9";

uint32_t blocks_of(uint64_t payload_bytes, const BenchOptions& options) {
  return static_cast<uint32_t>(std::max<uint64_t>(1, options.mooncake_batch_bytes / payload_bytes));
}

// So that two runs in one pool never meet.
Namespace new_namespace(const Clock& clock) {
  Random random(static_cast<uint64_t>(clock.now().time_since_epoch().count()));
  Namespace name_space;
  for (std::byte& byte : name_space.bytes) byte = static_cast<std::byte>(random.next());
  return name_space;
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(std::max<size_t>(values.size(), 1));
}

// What is compared for one payload, and all that is measured of it.
struct Contest {
  std::string name;
  const char* reach = "";
  const char* includes = "";
  bool is_put = false;
  bool verifies = false;
  Pairs pairs;
};

// The store and the raw client in turns, in processes that live as long as this object.
class Round {
 public:
  static Result<std::unique_ptr<Round>> create(const std::string& url, uint64_t payload_bytes,
                                               const BenchOptions& options,
                                               const BenchContext& context) {
    auto round = std::unique_ptr<Round>(new Round(payload_bytes, options, context));
    const uint32_t blocks = round->blocks_;
    TIERCEL_TRY_ASSIGN(const StoreUrl read, read_mooncake_url(url, context.clock));
    const Namespace name_space = new_namespace(context.clock);
    TIERCEL_TRY_ASSIGN(round->plain_, MooncakeLane::create(url, name_space, payload_bytes, blocks,
                                                           false, context.clock));
    TIERCEL_TRY_ASSIGN(round->verifying_, MooncakeLane::create(url, name_space, payload_bytes,
                                                               blocks, true, context.clock));
    // Keys as long as ours.
    constexpr size_t kPrefix = ObjectKey::kLength - 64;
    TIERCEL_TRY_ASSIGN(round->raw_,
                       RawMooncakeClient::start(read, round->plain_->object_bytes() * blocks,
                                                object_key_prefix(name_space).substr(0, kPrefix)));
    // A client that has only read so far reads more slowly than one that has written as well. All
    // of them have the same past.
    for (uint32_t put = 0; put <= kRoundsOfAProcess; ++put) {
      TIERCEL_TRY(round->verifying_->remove(blocks));
      TIERCEL_TRY(round->verifying_->put(blocks));
    }
    return round;
  }

  Status run(Contest& contest, uint32_t rounds) {
    const double gib = static_cast<double>(payload_bytes_) * blocks_ / kGiB;
    Status failure;
    const auto note = [&failure](Status status) {
      if (failure && !status) failure = std::move(status);
    };
    const Pairs pairs = in_turns(
        rounds, context_,
        [&] {
          if (!failure) return 0.0;
          note(prepare(contest));
          return gib / seconds_of(context_.clock, [&] { note(move(contest)); });
        },
        [&] {
          if (!failure) return 0.0;
          const Result<double> seconds = move_raw(contest);
          if (!seconds) note(seconds.error());
          return seconds ? gib / *seconds : 0.0;
        });
    TIERCEL_TRY(failure);
    Pairs& all = contest.pairs;
    all.measured.insert(all.measured.end(), pairs.measured.begin(), pairs.measured.end());
    all.limit.insert(all.limit.end(), pairs.limit.begin(), pairs.limit.end());
    return {};
  }

  Status clean_up() {
    TIERCEL_TRY(plain_->remove(blocks_));
    return raw_->remove(plain_->object_bytes(), blocks_);
  }

  uint64_t object_bytes() const { return plain_->object_bytes(); }

 private:
  Round(uint64_t payload_bytes, const BenchOptions& options, const BenchContext& context)
      : payload_bytes_(payload_bytes),
        blocks_(blocks_of(payload_bytes, options)),
        context_(context) {}

  Status prepare(const Contest& contest) {
    if (contest.is_put) return plain_->remove(blocks_);
    if (contest.verifies) verifying_->forget_what_was_got();
    return {};
  }
  Status move(const Contest& contest) {
    if (contest.is_put) return plain_->put(blocks_);
    return (contest.verifies ? verifying_ : plain_)->get(blocks_);
  }
  Result<double> move_raw(const Contest& contest) {
    if (!contest.is_put) return raw_->get(object_bytes(), blocks_);
    TIERCEL_TRY(raw_->remove(object_bytes(), blocks_));
    return raw_->put(object_bytes(), blocks_);
  }

  const uint64_t payload_bytes_;
  const uint32_t blocks_;
  const BenchContext& context_;
  std::unique_ptr<MooncakeLane> plain_, verifying_;
  std::unique_ptr<RawMooncakeClient> raw_;
};

Status measure_payload(const std::string& url, uint64_t payload_bytes, const BenchOptions& options,
                       const BenchContext& context, BenchFigures& figures) {
  const std::string size = exact_bytes(payload_bytes);
  std::array<Contest, 3> contests = {
      Contest{"mooncake.put." + size, kUnverified, "the frame checked", true, false, {}},
      Contest{"mooncake.get." + size, kUnverified, "nothing verified", false, false, {}},
      Contest{"mooncake.get_verified." + size,
              kVerified,
              "frame and checksum of the payload checked",
              false,
              true,
              {}}};
  uint64_t object_bytes = 0;
  for (uint32_t done = 0; done < options.mooncake_rounds && !context.stopped();) {
    const uint32_t rounds = std::min(kRoundsOfAProcess, options.mooncake_rounds - done);
    TIERCEL_TRY_ASSIGN(const std::unique_ptr<Round> round,
                       Round::create(url, payload_bytes, options, context));
    for (Contest& contest : contests) TIERCEL_TRY(round->run(contest, rounds));
    TIERCEL_TRY(round->clean_up());
    object_bytes = round->object_bytes();
    done += rounds;
  }
  for (const Contest& contest : contests) {
    const Pairs& pairs = contest.pairs;
    figures.push_back(paired_figure(contest.name, "GiB/s", pairs, contest.reach));
    auto& conditions = figures.back().conditions;
    conditions.emplace_back("ratio_of_means",
                            fmt::format("{:.3f}", mean_of(pairs.measured) / mean_of(pairs.limit)));
    conditions.emplace_back("batch",
                            fmt::format("{} x {}", blocks_of(payload_bytes, options), size));
    conditions.emplace_back("object_bytes", std::to_string(object_bytes));
    conditions.emplace_back("includes", contest.includes);
    conditions.emplace_back("processes",
                            fmt::format("new ones every {} rounds", kRoundsOfAProcess));
    conditions.emplace_back("limit_is",
                            fmt::format("one call of Mooncake's Python client, batch_{}, objects "
                                        "of the same length, arguments ready",
                                        contest.is_put ? "put_from" : "get_into"));
  }
  return {};
}

// Microseconds of `work` beyond those that the sidecar was with Mooncake.
template <typename Work>
double hop_of(const MooncakeLane& lane, const Clock& clock, Work&& work) {
  const Duration before = lane.store().stats().service_time;
  const double seconds = seconds_of(clock, work);
  const Duration within = lane.store().stats().service_time - before;
  return kMicrosecondsPerSecond * (seconds - std::chrono::duration<double>(within).count());
}

void add_times(const std::string& name, const std::vector<double>& times, const char* reach,
               BenchFigures& figures) {
  figures.push_back(plain_figure(name, "us", times, reach));
  figures.back().conditions.emplace_back("p99", fmt::format("{:.4g}", quantile(times, 0.99)));
}

Status measure_hops(const std::string& url, const BenchOptions& options,
                    const BenchContext& context, BenchFigures& figures) {
  TIERCEL_TRY_ASSIGN(const std::unique_ptr<MooncakeLane> lane,
                     MooncakeLane::create(url, new_namespace(context.clock), kHopPayload,
                                          blocks_of(kHopPayload, options), false, context.clock));
  for (const uint32_t count : {std::min(kHopBlocks, blocks_of(kHopPayload, options)), 1u}) {
    std::vector<double> put_times;
    std::vector<double> get_times;
    Status failure;
    const auto note = [&failure](Status status) {
      if (failure && !status) failure = std::move(status);
    };
    for (uint32_t i = 0; i < options.mooncake_round_trips && !context.stopped(); ++i) {
      put_times.push_back(hop_of(*lane, context.clock, [&] { note(lane->put(count)); }));
      get_times.push_back(hop_of(*lane, context.clock, [&] { note(lane->get(count)); }));
      note(lane->remove(count));
      TIERCEL_TRY(failure);
    }
    const char* const reach = count == 1 ? "p50 at most 60" : "p50 at most 250";
    const std::string batch = fmt::format("{} x {}", count, exact_bytes(kHopPayload));
    for (const auto& [verb, times] : {std::pair("put", &put_times), std::pair("get", &get_times)}) {
      add_times(fmt::format("mooncake.hop.{}.{}", verb, count == 1 ? "one" : "batch"), *times,
                reach, figures);
      figures.back().conditions.emplace_back("batch", batch);
      figures.back().conditions.emplace_back(
          "is", "from submission to completion in the rank worker, less the time in Mooncake");
    }
  }
  return {};
}

Status measure_question(const std::string& url, const BenchOptions& options,
                        const BenchContext& context, BenchFigures& figures) {
  constexpr uint64_t kPayload = 4096;
  TIERCEL_TRY_ASSIGN(const std::unique_ptr<MooncakeLane> lane,
                     MooncakeLane::create(url, new_namespace(context.clock), kPayload,
                                          kQuestionBlocks, false, context.clock));
  std::vector<double> times;
  Status failure;
  const uint64_t messages_before = lane->store().stats().messages;
  for (uint32_t i = 0; i < options.mooncake_round_trips && !context.stopped(); ++i) {
    times.push_back(kMicrosecondsPerSecond * seconds_of(context.clock, [&] {
                      if (failure) failure = lane->ask(kQuestionBlocks);
                    }));
    TIERCEL_TRY(failure);
  }
  const uint64_t messages = lane->store().stats().messages - messages_before;
  add_times("mooncake.exists.300", times, "one round trip", figures);
  figures.back().conditions.emplace_back(
      "messages_per_question",
      fmt::format("{:.3g}", static_cast<double>(messages) /
                                static_cast<double>(std::max<size_t>(times.size(), 1))));
  return {};
}

}  // namespace

Status check_bench_mooncake(const BenchOptions& options, const BenchContext& context) {
  // Two lanes with source, target and device each, the raw client's memory, and the pool.
  constexpr uint64_t kCopies = 10;
  TIERCEL_TRY(context.check_bytes_fit(
      "mooncake_batch_bytes", options.mooncake_batch_bytes,
      kCopies * slot_stride_bytes(std::max(options.mooncake_batch_bytes, kPayloads[0]))));
  const uint64_t arena =
      *std::max_element(options.mooncake_arenas.begin(), options.mooncake_arenas.end());
  return context.check_bytes_fit("mooncake_arenas", arena, arena);
}

Result<BenchFigures> bench_mooncake(const BenchOptions& options, const BenchContext& context) {
  BenchFigures figures;
  if (options.mooncake.empty()) {
    if (context.note) {
      context.note(
          "mooncake is left out: no pool is named; --mooncake scripts/mooncake-dev starts one for "
          "the run, --mooncake mooncake://host:port uses one that is there");
    }
    return figures;
  }
  TIERCEL_TRY_ASSIGN(const std::unique_ptr<BenchPool> pool, BenchPool::open(options.mooncake));
  for (const uint64_t payload : kPayloads) {
    if (context.stopped()) return figures;
    TIERCEL_TRY(measure_payload(pool->url(), payload, options, context, figures));
  }
  if (context.stopped()) return figures;
  TIERCEL_TRY(measure_hops(pool->url(), options, context, figures));
  if (context.stopped()) return figures;
  TIERCEL_TRY(measure_question(pool->url(), options, context, figures));
  if (context.stopped()) return figures;
  TIERCEL_TRY(bench_mooncake_respawn(pool->url(), options, context, figures));
  if (pool->is_own()) {
    TIERCEL_TRY(bench_mooncake_faults(*pool, options, context, figures));
  } else if (context.note) {
    context.note("mooncake: what a dead pool costs is left out: the pool is not the run's own");
  }
  return figures;
}

}  // namespace tiercel
