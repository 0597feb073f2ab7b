// SPDX-License-Identifier: Apache-2.0
#include "cache/cost_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/core.h>

#include "base/check_value.h"
#include "base/quantity.h"
#include "base/seconds.h"

namespace tiercel {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
// Later than everything that is planned, and far from the end of 64 bits of nanoseconds.
constexpr double kSecondsMax = 1e9;
// A load is given up after so many times what was expected of it.
constexpr double kPatienceFactor = 3;
constexpr uint32_t kProbeBlocksMax = 64;

Duration to_duration(double seconds) {
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(std::clamp(seconds, 0.0, kSecondsMax)));
}

constexpr size_t index_of(TransferPath path) { return static_cast<size_t>(path); }

Status more_than_zero(std::string_view name, double value) {
  if (value > 0 && std::isfinite(value)) return {};
  return Error(Code::kInvalid, fmt::format("{} is {}; allowed: more than 0", name, value));
}

}  // namespace

std::string_view to_string(TransferPath path) {
  switch (path) {
    case TransferPath::kHostToDevice:
      return "host_to_device";
    case TransferPath::kDiskToHost:
      return "disk_to_host";
    case TransferPath::kStoreToHost:
      return "store_to_host";
    case TransferPath::kStoreQuestion:
      return "store_question";
  }
  return "unknown";
}

Status LoadOrRecomputeConfig::validate() const {
  for (size_t i = 0; i < kTransferPathCount; ++i) {
    const std::string_view name = to_string(static_cast<TransferPath>(i));
    TIERCEL_TRY(
        more_than_zero(fmt::format("load_or_recompute.transfers[{}].units_per_second", name),
                       transfers[i].units_per_second));
    if (transfers[i].latency < Duration::zero()) {
      return Error(Code::kInvalid,
                   fmt::format("load_or_recompute.transfers[{}].latency is {}; allowed: 0 or more",
                               name, format_duration(transfers[i].latency)));
    }
  }
  TIERCEL_TRY(
      more_than_zero("load_or_recompute.prefill.tokens_per_second", prefill.tokens_per_second));
  if (!(prefill.context_doubling >= 0)) {
    return Error(Code::kInvalid,
                 fmt::format("load_or_recompute.prefill.context_doubling is {}; allowed: 0 or more",
                             prefill.context_doubling));
  }
  if (!(overlap >= 0 && overlap <= 1)) {
    return Error(Code::kInvalid,
                 fmt::format("load_or_recompute.overlap is {}; allowed: 0 to 1", overlap));
  }
  TIERCEL_TRY(positive("load_or_recompute.half_life", half_life));
  TIERCEL_TRY(positive("load_or_recompute.suspension", suspension));
  TIERCEL_TRY(positive("load_or_recompute.probe_after", probe_after));
  if (suspension_max < suspension) {
    return Error(
        Code::kInvalid,
        fmt::format("load_or_recompute.suspension_max is {}; allowed: at least suspension, "
                    "{}",
                    format_duration(suspension_max), format_duration(suspension)));
  }
  if (probe_blocks > kProbeBlocksMax) {
    return Error(Code::kInvalid,
                 fmt::format("load_or_recompute.probe_blocks is {}; allowed: 0 to {}", probe_blocks,
                             kProbeBlocksMax));
  }
  return {};
}

double prefill_seconds(const PrefillRate& rate, double context, double tokens) {
  const double growth =
      rate.context_doubling > 0 ? (context + tokens / 2) / rate.context_doubling : 0;
  return tokens / rate.tokens_per_second * (1 + growth);
}

CutCosts::CutCosts(const CutQuestion& question, uint32_t block_tokens, const PrefillRate& prefill,
                   double overlap)
    : question_(question), block_tokens_(block_tokens), prefill_(prefill), overlap_(overlap) {}

double CutCosts::prefill_seconds(uint32_t blocks) const {
  const double context = (static_cast<double>(question_.first_block) + blocks) * block_tokens_;
  const double tokens = static_cast<double>(question_.works.size() - 1 - blocks) * block_tokens_ +
                        static_cast<double>(question_.tokens_behind);
  return tiercel::prefill_seconds(prefill_, context, tokens);
}

CutTimes CutCosts::times(uint32_t blocks, const PathSeconds& paths, double last_block) const {
  CutTimes times;
  times.prefill = prefill_seconds(blocks);
  const double to_device = paths[index_of(TransferPath::kHostToDevice)];
  double to_host = paths[index_of(TransferPath::kStoreQuestion)] +
                   std::max(paths[index_of(TransferPath::kStoreToHost)],
                            paths[index_of(TransferPath::kDiskToHost)]);
  if (question_.staged) {
    // What has come is seen at a poll only, and what is answered is fetched from then on.
    const double poll = to_seconds(question_.poll);
    if (to_host > 0) to_host = std::max(poll, to_host + poll / 2);
    const auto& units = question_.works[blocks].units;
    if (units[index_of(TransferPath::kStoreQuestion)] > 0) to_host += poll;
    times.load = std::max(0.0, to_host - to_seconds(question_.wait)) + to_device;
  } else {
    // Block by block through both: the last one has still to go to the device.
    times.load = std::max(to_device, to_host > 0 ? to_host + last_block : 0.0);
  }
  const double until_there = question_.staged ? to_host : times.load;
  if (question_.time_left != Duration::max() && until_there > to_seconds(question_.time_left)) {
    times.load = kInfinite;
  }
  times.total = times.load + times.prefill;
  if (times.load < kInfinite) times.total -= overlap_ * std::min(times.load, times.prefill);
  return times;
}

CostModel::CostModel(const LoadOrRecomputeConfig& config, uint32_t block_tokens)
    : config_(config),
      block_tokens_(block_tokens),
      paths_{Path(config.half_life), Path(config.half_life), Path(config.half_life),
             Path(config.half_life)},
      prefill_(config.half_life) {}

double CostModel::seconds(TransferPath path, uint64_t units) const {
  const TransferRate& prior = config_.transfers[index_of(path)];
  return at(path).fit.seconds(to_seconds(prior.latency),
                              static_cast<double>(units) / prior.units_per_second);
}

CostModel::Transfer CostModel::submitted(TransferPath path, uint64_t units, TimePoint now,
                                         TimePoint deadline) {
  Path& known = at(path);
  Transfer transfer;
  transfer.started = now;
  transfer.deadline = deadline;
  transfer.units_ahead = known.units_ahead;
  transfer.arrived_before = known.arrived;
  transfer.expected = seconds(path, known.units_ahead + units);
  known.units_ahead += units;
  return transfer;
}

void CostModel::left(TransferPath path, uint64_t units, bool arrived) {
  Path& known = at(path);
  known.units_ahead -= std::min(known.units_ahead, units);
  if (arrived) ++known.arrived;
}

bool CostModel::ended(TransferPath path, const Transfer& transfer, uint64_t units_arrived,
                      Code outcome, TimePoint earliest, TimePoint now) {
  Path& known = at(path);
  if (transfer.is_probe) {
    known.probing = false;
    known.probe_not_before = now + probe_time(path);
  }
  // What has run out of time had it until the deadline only, whenever that was noticed.
  const TimePoint end = outcome == Code::kTimeout ? std::min(now, transfer.deadline) : now;
  const double actual = to_seconds(end - transfer.started);
  if (outcome == Code::kOk) {
    const double least = to_seconds(std::clamp(earliest, transfer.started, now) - transfer.started);
    observe(path, transfer.units_ahead + units_arrived, least, actual, now);
    known.suspended = false;
    known.suspension = Duration::zero();
    return false;
  }
  if (outcome != Code::kTimeout) return false;
  if (known.arrived != transfer.arrived_before) {
    // Slow, not still: at least so slow.
    if (actual > transfer.expected) {
      observe(path, transfer.units_ahead + units_arrived, actual, actual, now);
    }
    return false;
  }
  // Whoever gave it less time than it was expected to take has learned nothing, but a probe has.
  if (actual < transfer.expected && !transfer.is_probe) return false;
  if (known.suspended && !transfer.is_probe) return false;  // of the same stall
  suspend(known, now);
  return true;
}

void CostModel::suspend(Path& path, TimePoint now) {
  path.suspension = path.suspension == Duration::zero()
                        ? config_.suspension
                        : std::min(2 * path.suspension, config_.suspension_max);
  path.suspended = true;
  path.suspended_until = now + path.suspension;
  ++path.suspensions;
}

void CostModel::observe(TransferPath path, uint64_t units, double least, double most,
                        TimePoint now) {
  const TransferRate& prior = config_.transfers[index_of(path)];
  const double fixed = to_seconds(prior.latency);
  const double growing = static_cast<double>(units) / prior.units_per_second;
  Path& known = at(path);
  ++known.measurements;
  known.measured_at = now;
  if (fixed + growing <= 0) return;
  const double expected = known.fit.seconds(fixed, growing);
  // Where both bounds are one, every measurement counts; else only what contradicts.
  if (least < most && expected >= least && expected <= most) return;
  // Quicker than expected, it came at any time before it was seen. Taking the latest would keep a
  // path that is believed too slow at the speed of the polls; too quick a guess is used, and so put
  // right by the next measurement.
  const double actual = expected > most ? (least + most) / 2 : least;
  known.fit.observe(fixed, growing, actual, now);
}

void CostModel::observe_prefill(uint64_t tokens, uint64_t context_tokens, Duration duration,
                                TimePoint now) {
  if (tokens == 0 || duration <= Duration::zero()) return;
  const double linear = static_cast<double>(tokens) / config_.prefill.tokens_per_second;
  const double all = prefill_seconds(config_.prefill, static_cast<double>(context_tokens),
                                     static_cast<double>(tokens));
  prefill_.observe(linear, all - linear, to_seconds(duration), now);
}

LoadChoice CostModel::choose(const CutQuestion& question) const {
  LoadChoice choice;
  choice.first_block = question.first_block;
  choice.blocks_there = static_cast<uint32_t>(question.works.size()) - 1;
  choice.made = choice.blocks_there > 0;
  const CutCosts costs(question, block_tokens_, prefill_rate(), config_.overlap);
  // What it would take behind all that is on its way on a path.
  const auto path_seconds = [&](TransferPath path, uint64_t units, bool waits) {
    if (units == 0 && !waits) return 0.0;
    if (at(path).suspended) return kInfinite;
    return seconds(path, at(path).units_ahead + units);
  };
  // Where a fill comes from is not known; the slower of the ways in is the careful guess.
  const bool waits_for_store = at(TransferPath::kStoreToHost).units_ahead > 0;
  const double last_block = seconds(TransferPath::kHostToDevice, question.block_units);
  CutTimes best;
  for (uint32_t blocks = 0; blocks < question.works.size(); ++blocks) {
    const CutWork& work = question.works[blocks];
    CutCosts::PathSeconds paths{};
    for (size_t i = 0; i < kTransferPathCount; ++i) {
      const auto path = static_cast<TransferPath>(i);
      const bool is_waited_for =
          work.waits_for_fill &&
          path == (waits_for_store ? TransferPath::kStoreToHost : TransferPath::kDiskToHost);
      paths[i] = path_seconds(path, work.units[i], is_waited_for);
    }
    const CutTimes times = costs.times(blocks, paths, last_block);
    if (blocks == 0) choice.recompute_expected = to_duration(times.prefill);
    if (blocks > 0 && !(times.total <= best.total)) continue;
    best = times;
    choice.blocks_chosen = blocks;
  }
  choice.load_expected = to_duration(best.load);
  choice.prefill_expected = to_duration(best.prefill);
  choice.time_saved = choice.recompute_expected - to_duration(best.total);
  return choice;
}

Duration CostModel::patience(const LoadChoice& choice, Duration wait) {
  const Duration instead = choice.recompute_expected - choice.prefill_expected;
  return wait + std::max(to_duration(kPatienceFactor * to_seconds(choice.load_expected)), instead);
}

bool CostModel::may_probe(TransferPath path, TimePoint now) const {
  return config_.probe_blocks > 0 && !at(path).probing && now >= at(path).probe_not_before;
}

bool CostModel::wants_probe(TransferPath path, TimePoint now) const {
  const Path& known = at(path);
  if (!may_probe(path, now)) return false;
  if (known.suspended) return now >= known.suspended_until;
  return known.measurements == 0 || now - known.measured_at >= config_.probe_after;
}

uint32_t CostModel::probe_blocks(TransferPath path, uint64_t units, Duration poll_interval) const {
  constexpr double kPolls = 4;
  const double each = static_cast<double>(units) / rate(path).units_per_second;
  const double wanted = kPolls * to_seconds(poll_interval) / each;
  return std::max(config_.probe_blocks,
                  static_cast<uint32_t>(std::min<double>(wanted, kProbeBlocksMax)));
}

void CostModel::probes(TransferPath path, Transfer& transfer) {
  at(path).probing = true;
  transfer.is_probe = true;
}

TransferRate CostModel::rate(TransferPath path) const {
  const TransferRate& prior = config_.transfers[index_of(path)];
  const TwoTermFit::Factors& factors = at(path).fit.factors();
  return {to_duration(factors.fixed * to_seconds(prior.latency)),
          prior.units_per_second / factors.growing};
}

PrefillRate CostModel::prefill_rate() const {
  const TwoTermFit::Factors& factors = prefill_.factors();
  PrefillRate rate;
  rate.tokens_per_second = config_.prefill.tokens_per_second / factors.fixed;
  rate.context_doubling = config_.prefill.context_doubling * factors.fixed / factors.growing;
  return rate;
}

LoadEstimates CostModel::estimates() const {
  LoadEstimates estimates;
  for (size_t i = 0; i < kTransferPathCount; ++i) {
    const auto path = static_cast<TransferPath>(i);
    estimates.transfers[i] = {.rate = rate(path),
                              .measurements = at(path).measurements,
                              .suspensions = at(path).suspensions,
                              .units_ahead = at(path).units_ahead,
                              .suspended = at(path).suspended};
  }
  estimates.prefill = prefill_rate();
  estimates.prefill_measurements = prefill_.count();
  return estimates;
}

}  // namespace tiercel
