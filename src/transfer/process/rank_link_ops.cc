// SPDX-License-Identifier: Apache-2.0
//
// RankLink: operations and completions.
#include <algorithm>
#include <array>

#include "transfer/process/rank_link.h"

namespace tiercel {
namespace {

// Completions that are taken from a ring at once.
constexpr size_t kBatch = 256;

// Whether an ok of this kind says that the slot holds something.
bool fills_slot(OpKind kind) {
  return kind == OpKind::kSave || kind == OpKind::kStoreGet || kind == OpKind::kDiskGet;
}

RankStats sum(const RankStats& a, const RankStats& b) {
  RankStats total = b;
  for (size_t i = 0; i < total.paths.size(); ++i) total.paths[i] += a.paths[i];
  total.store.opened += a.store.opened;
  total.store.refused += a.store.refused;
  total.disk.opened += a.disk.opened;
  total.disk.refused += a.disk.refused;
  total.disk_read_bytes += a.disk_read_bytes;
  total.disk_written_bytes += a.disk_written_bytes;
  total.disk_syncs += a.disk_syncs;
  return total;
}

}  // namespace

RankStats RankLink::stats() const {
  return port_ ? sum(stats_before_, port_->stats()) : stats_before_;
}

ReasonText RankLink::store_reason() const {
  const ReasonText reason = port_ ? port_->store_reason() : ReasonText();
  return reason.empty() ? store_reason_before_ : reason;
}

StoreCondition RankLink::disk_condition() const {
  return port_ ? port_->disk_condition() : stats_before_.disk.condition;
}

size_t RankLink::capacity() const {
  const size_t used = outstanding_.size() + ended_.size();
  return used < context_.options.ring_ops ? context_.options.ring_ops - used : 0;
}

void RankLink::submit(std::span<const BlockOp> ops) {
  if (phase_ == Phase::kUp && lie_.empty()) {
    if (port_->submit(ops)) {
      const TimePoint now = context_.clock.now();
      for (const BlockOp& op : ops) outstanding_.add(op, now);
      return;
    }
    lie_ = "it shows less room in its ring than it must have";
  }
  for (const BlockOp& op : ops) end_op(op.job, op.item);
}

void RankLink::end_op(JobId job, uint32_t item) {
  ended_.push({.completion = {.job = job,
                              .item = item,
                              .rank = static_cast<uint16_t>(rank_.worker.rank),
                              .code = Code::kUnavailable}});
}

std::optional<OpKind> RankLink::find(const Completion& completion) {
  if (completion.rank != rank_.worker.rank || completion.code > Code::kInternal ||
      completion.reserved != 0) {
    return std::nullopt;
  }
  return outstanding_.remove(completion.job, completion.item);
}

// A lie does not lose the rank at once, but at the beginning of the next poll(): the memory epoch
// must not rise in one that brings what it has truthfully completed before.
std::optional<OpKind> RankLink::check(const Completion& completion) {
  const std::optional<OpKind> kind = find(completion);
  if (!kind) {
    lie_ = "it completed what it has not been given, or twice, or with a code that there is not";
  }
  return kind;
}

size_t RankLink::take_ended(std::span<Completion> out) {
  const size_t count = std::min(out.size(), ended_.size());
  for (size_t i = 0; i < count; ++i) {
    const Ended& ended = ended_[i];
    out[i] = ended.completion;
    // What it says was true, but the slot has been emptied since.
    if (ended.fills_slot && ended.epoch != memory_epoch_ && out[i].code == Code::kOk) {
      out[i].code = Code::kUnavailable;
    }
  }
  ended_.pop(count);
  return count;
}

size_t RankLink::poll(std::span<Completion> out) {
  size_t count = take_ended(out);
  if (phase_ != Phase::kUp || !lie_.empty()) return count;
  const size_t taken = port_->poll(out.subspan(count));
  for (size_t i = 0; i < taken; ++i, ++count) {
    if (!check(out[count])) return count;
  }
  if (port_->is_broken()) lie_ = "it shows more completions than it has been given operations";
  return count;
}

bool RankLink::has_completions() {
  return !ended_.empty() || (phase_ == Phase::kUp && !lie_.empty()) ||
         (phase_ == Phase::kUp && port_->has_completions());
}

void RankLink::pull_completions() {
  std::array<Completion, kBatch> batch;
  while (const size_t count = port_->poll(batch)) {
    for (size_t i = 0; i < count; ++i) {
      const std::optional<OpKind> kind = check(batch[i]);
      if (!kind) return;
      ended_.push({batch[i], memory_epoch_, fills_slot(*kind)});
    }
  }
}

void RankLink::end_ops() {
  for (const OutstandingOps::Op& op : outstanding_.take_all()) end_op(op.job, op.item);
}

}  // namespace tiercel
