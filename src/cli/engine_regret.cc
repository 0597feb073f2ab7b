// SPDX-License-Identifier: Apache-2.0
#include "cli/engine_regret.h"

#include <algorithm>
#include <limits>

#include "base/seconds.h"
#include "cache/cost_model.h"

namespace tiercel {
namespace {

constexpr double kForEver = std::numeric_limits<double>::infinity();

double seconds_until(TimePoint end, TimePoint now) {
  return end == kNoDeadline ? kForEver : to_seconds(end - now);
}

uint64_t units(const CutWork& work, TransferPath path) {
  return work.units[static_cast<size_t>(path)];
}

}  // namespace

void EngineRegret::look_ahead(const CutQuestion& question) {
  const TimePoint now = question.now;
  const bool store_answers = plane_.stats(0).store.condition != StoreCondition::kOpen;
  TimedLink device = plane_.link(OpKind::kLoad), disk = plane_.link(OpKind::kDiskGet);
  TimedLink store = plane_.link(OpKind::kStoreGet), ask = plane_.link(OpKind::kStoreExists);
  // Well after all that waits now: one block alone.
  TimedLink idle = device;
  const TimePoint later = idle.next_begin(now) + std::chrono::hours(1);
  last_block_ = seconds_until(idle.add(later, question.block_units), later);

  cuts_.assign(1, Cut{});
  Cut cut;
  TimePoint answered = now;
  for (size_t i = 1; i < question.works.size(); ++i) {
    const CutWork &work = question.works[i], &before = question.works[i - 1];
    const auto added = [&](TransferPath path) { return units(work, path) - units(before, path); };
    const uint64_t from_store = added(TransferPath::kStoreToHost);
    const bool is_there =
        from_store == 0 ||
        (store_answers &&
         plane_.store_has(question.keys[question.first_block + i - 1], GroupId(0)));
    if (!is_there) return;
    if (added(TransferPath::kStoreQuestion) > 0 && answered == now) answered = ask.add(now, 0);
    if (from_store > 0) {
      const TimePoint end = answered == kNoDeadline ? answered : store.add(answered, from_store);
      cut.to_host = std::max(cut.to_host, seconds_until(end, now));
    }
    if (const uint64_t from_disk = added(TransferPath::kDiskToHost); from_disk > 0) {
      const TimePoint start = question.staged ? answered : now;
      const TimePoint end = start == kNoDeadline ? start : disk.add(start, from_disk);
      cut.to_host = std::max(cut.to_host, seconds_until(end, now));
    }
    if (work.waits_for_fill && !before.waits_for_fill) {
      // Behind all that is on its way, which is no sooner than it comes.
      TimedLink both[] = {store, disk};
      for (TimedLink& link : both) {
        cut.to_host = std::max(cut.to_host, seconds_until(link.add(now, 0), now));
      }
    }
    if (const uint64_t to_device = added(TransferPath::kHostToDevice); to_device > 0) {
      cut.to_device = seconds_until(device.add(now, to_device), now);
    }
    cuts_.push_back(cut);
  }
}

double EngineRegret::total_of(const CutQuestion& question, uint32_t blocks, double patience) const {
  // What is not there can not be loaded, whatever was chosen, and what has not come when patience
  // ends is computed.
  auto come = std::min(blocks, static_cast<uint32_t>(cuts_.size()) - 1);
  const auto arrives = [&](uint32_t count) {
    const Cut& cut = cuts_[count];
    if (question.staged) return cut.to_host;
    return std::max(cut.to_device, cut.to_host > 0 ? cut.to_host + last_block_ : 0.0);
  };
  bool cut_short = false;
  for (; come > 0 && arrives(come) > patience; --come) cut_short = true;
  CutQuestion free = question;
  free.time_left = Duration::max();
  const CutCosts costs(free, truth_.block_tokens, truth_.prefill, truth_.overlap);
  CutCosts::PathSeconds paths{};
  paths[static_cast<size_t>(TransferPath::kHostToDevice)] = cuts_[come].to_device;
  paths[static_cast<size_t>(TransferPath::kStoreToHost)] =
      cut_short ? patience : cuts_[come].to_host;
  return costs.times(come, paths, cut_short ? 0 : last_block_).total;
}

void EngineRegret::chosen(RequestId, const CutQuestion& question, const LoadChoice& choice) {
  look_ahead(question);
  double patience = to_seconds(CostModel::patience(choice, question.wait));
  if (question.time_left != Duration::max()) {
    patience = std::min(patience, to_seconds(question.time_left));
  }
  const auto all = static_cast<uint32_t>(question.works.size()) - 1;
  const double chosen = total_of(question, choice.blocks_chosen, patience);
  const double nothing = total_of(question, 0, kForEver);
  double best = std::min(chosen, nothing);
  for (uint32_t blocks = 1; blocks < cuts_.size(); ++blocks) {
    best = std::min(best, total_of(question, blocks, kForEver));
  }
  // Loading everything has only its deadline.
  const double loading_all =
      total_of(question, all,
               question.time_left == Duration::max() ? kForEver : to_seconds(question.time_left));
  ++sums_.choices;
  sums_.best += best;
  sums_.lost += chosen - best;
  sums_.lost_loading_nothing += nothing - best;
  if (loading_all < kForEver) sums_.lost_loading_all += loading_all - best;
}

}  // namespace tiercel
