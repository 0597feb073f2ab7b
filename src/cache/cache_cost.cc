// SPDX-License-Identifier: Apache-2.0
//
// Load or recompute: what a cut would have to move, what jobs say of the speed of their paths, and
// the small transfers that only find out how fast a path has become.
#include <algorithm>
#include <optional>
#include <utility>

#include "cache/cache_impl.h"

namespace tiercel {
namespace {

std::optional<TransferPath> path_of(OpKind kind) {
  switch (kind) {
    case OpKind::kLoad:
      return TransferPath::kHostToDevice;
    case OpKind::kDiskGet:
      return TransferPath::kDiskToHost;
    case OpKind::kStoreGet:
      return TransferPath::kStoreToHost;
    case OpKind::kStoreExists:
      return TransferPath::kStoreQuestion;
    case OpKind::kSave:
    case OpKind::kStorePut:
    case OpKind::kStoreRemove:
    case OpKind::kDiskPut:
    case OpKind::kDiskClear:
      break;
  }
  return std::nullopt;
}

// What finds out how fast the way is on which a block can be had from there.
std::optional<OpKind> probe_kind(BlockPlace place) {
  if (place == BlockPlace::kDisk) return OpKind::kDiskGet;
  if (place == BlockPlace::kStore) return OpKind::kStoreGet;
  if (place == BlockPlace::kUnknown) return OpKind::kStoreExists;
  return std::nullopt;
}

// An answer, whatever it says, is one: a block that the store has not got was looked for as fast as
// one that it has.
bool is_answer(Code code) {
  return code == Code::kOk || code == Code::kNotFound || code == Code::kCorrupt ||
         code == Code::kInvalid;
}

void add(CutWork& work, const CutWork& part) {
  for (size_t i = 0; i < kTransferPathCount; ++i) work.units[i] += part.units[i];
}

void subtract(CutWork& work, const CutWork& part) {
  for (size_t i = 0; i < kTransferPathCount; ++i) work.units[i] -= part.units[i];
}

uint64_t& units_of(CutWork& work, TransferPath path) {
  return work.units[static_cast<size_t>(path)];
}

}  // namespace

uint64_t Cache::Impl::units_of_item(OpKind kind, GroupId group) const {
  return kind == OpKind::kStoreExists ? 1 : block_bytes_[group.value()];
}

CutWork Cache::Impl::work_of(uint32_t group, uint32_t position) const {
  const uint64_t bytes = block_bytes_[group];
  const NodeId node = view_.node(group, position);
  CutWork work;
  if (node != kNoNode && host_.has(node)) {
    units_of(work, TransferPath::kHostToDevice) = bytes;
    return work;
  }
  switch (view_.place(group, position)) {
    case BlockPlace::kComputed:
    case BlockPlace::kDevice:
    case BlockPlace::kNone:
      return work;
    case BlockPlace::kHost:
      break;
    case BlockPlace::kDisk:
      units_of(work, TransferPath::kDiskToHost) = bytes;
      break;
    case BlockPlace::kInFlight:
      work.waits_for_fill = true;
      break;
    case BlockPlace::kUnknown:
      units_of(work, TransferPath::kStoreQuestion) = 1;
      [[fallthrough]];
    case BlockPlace::kStore:
      units_of(work, TransferPath::kStoreToHost) = bytes;
      break;
  }
  units_of(work, TransferPath::kHostToDevice) = bytes;
  return work;
}

void Cache::Impl::collect_works(uint32_t cut) {
  const uint32_t computed = view_.first_uncomputed();
  works_.assign(size_t{cut} - computed + 1, CutWork{});
  for (uint32_t group = 0; group < groups(); ++group) {
    // A window group needs only what lies in the window before the cut: `first` follows it.
    CutWork sum;
    uint32_t first = computed, fills = 0;
    for (uint32_t end = computed + 1; end <= cut; ++end) {
      const CutWork next = work_of(group, end - 1);
      add(sum, next);
      if (next.waits_for_fill) ++fills;
      for (; first < view_.first_needed(group, end, computed); ++first) {
        const CutWork gone = work_of(group, first);
        subtract(sum, gone);
        if (gone.waits_for_fill) --fills;
      }
      CutWork& work = works_[end - computed];
      add(work, sum);
      work.waits_for_fill = work.waits_for_fill || fills > 0;
    }
  }
}

uint32_t Cache::Impl::choose_cut(Request& request, uint32_t cut, bool staged, TimePoint deadline,
                                 Duration wait, LoadChoice& choice) {
  const uint32_t computed = view_.first_uncomputed();
  choice = LoadChoice{};
  if (!costs_.enabled() || cut <= computed) return cut;
  collect_works(cut);
  const TimePoint now = clock_.now();
  CutQuestion question;
  question.now = now;
  question.keys = request.keys;
  question.first_block = computed;
  question.works = works_;
  question.tokens_behind = (request.keys.size() - cut) * uint64_t{config_.spec.block_tokens};
  for (const uint64_t bytes : block_bytes_) question.block_units += bytes;
  question.staged = staged;
  question.wait = wait;
  // Who need not wait may have an idle engine, which is woken by what comes.
  if (wait > Duration::zero()) question.poll = poll_interval_;
  if (deadline != kNoDeadline) question.time_left = std::max(Duration::zero(), deadline - now);
  choice = costs_.choose(question);
  ++stats_.load_choices;
  stats_.not_worth_blocks += choice.blocks_there - choice.blocks_chosen;
  if (config_.load_or_recompute.listener != nullptr) {
    config_.load_or_recompute.listener->chosen(request.id, question, choice);
  }
  return computed + choice.blocks_chosen;
}

TimePoint Cache::Impl::patience(const LoadChoice& choice, TimePoint deadline, Duration wait) const {
  if (!choice.made) return deadline;
  const TimePoint now = clock_.now();
  // What comes is seen at a poll, and what follows it starts there: question, get, copy.
  constexpr int kPollsOfALoad = 3;
  const Duration patience = CostModel::patience(choice, wait) + kPollsOfALoad * poll_interval_;
  // Compared as durations: neither sum may pass the end of time.
  return deadline == kNoDeadline || deadline - now > patience ? now + patience : deadline;
}

void Cache::Impl::note_poll() {
  constexpr int kPollsInMean = 8;
  const TimePoint now = clock_.now();
  // A pause is no interval.
  const Duration interval = std::min<Duration>(now - last_poll_, std::chrono::seconds(1));
  if (last_poll_ != TimePoint{}) poll_interval_ += (interval - poll_interval_) / kPollsInMean;
  last_poll_ = now;
}

void Cache::Impl::note_submitted(Job& job) {
  const auto path = path_of(job.kind);
  if (!path) return;
  uint64_t units = 0;
  for (const JobItem& item : job.items) units += units_of_item(job.kind, item.group);
  job.transfer = costs_.submitted(*path, units, clock_.now(), job.deadline);
  job.units_arrived = 0;
  job.outcome = Code::kOk;
  if (job.is_probe) costs_.probes(*path, job.transfer);
}

void Cache::Impl::note_settled(Job& job, const JobItem& item, Code code) {
  const auto path = path_of(job.kind);
  if (!path) return;
  const uint64_t units = units_of_item(job.kind, item.group);
  costs_.left(*path, units, is_answer(code));
  if (code == Code::kOk || (job.kind == OpKind::kStoreExists && is_answer(code))) {
    job.units_arrived += units;
  }
  if (!is_answer(code) && job.outcome != Code::kTimeout) job.outcome = code;
  if (job.items_unsettled > 0) return;
  if (costs_.ended(*path, job.transfer, job.units_arrived, job.outcome, last_poll_, clock_.now())) {
    ++stats_.suspensions;
  }
}

void Cache::Impl::note_probe_answer(const Job& job, const JobItem& item) {
  if (probe_next_ || !costs_.wants_probe(TransferPath::kStoreToHost, clock_.now())) return;
  probe_next_ = ProbeNext{job.request, job.request_generation, item.group.value(), item.position};
}

void Cache::Impl::pump_probe() {
  if (!probe_next_) return;
  const ProbeNext next = *std::exchange(probe_next_, std::nullopt);
  Request* request = requests_.at(next.request, next.generation);
  if (request == nullptr || refuses_work() || next.position >= request->keys.size()) return;
  view_.look(request->keys, next.position, clock_.now());
  if (next.position < view_.block_count() &&
      view_.place(next.group, next.position) == BlockPlace::kStore) {
    probe(*request, next.group, next.position, OpKind::kStoreGet);
  }
}

void Cache::Impl::probe_behind(Request& request, uint32_t computed, uint32_t from) {
  if (!costs_.enabled() || refuses_work()) return;
  view_.look(request.keys, computed, clock_.now());
  // The first block of each path: behind blocks on a disk that is known the store may not be.
  for (uint32_t group = 0; group < groups(); ++group) {
    BlockPlace tried = BlockPlace::kNone;
    for (uint32_t position = from; position < view_.block_count(); ++position) {
      const BlockPlace place = view_.place(group, position);
      if (place == tried) continue;
      tried = place;
      const std::optional<OpKind> kind = probe_kind(place);
      if (kind && probe(request, group, position, *kind)) return;
    }
  }
}

bool Cache::Impl::probes_device(uint32_t cut) {
  const uint32_t first = view_.first_uncomputed();
  if (!costs_.enabled() || cut <= first ||
      !costs_.wants_probe(TransferPath::kHostToDevice, clock_.now())) {
    return false;
  }
  const uint32_t end = std::min(cut, first + costs_.probe_blocks());
  for (uint32_t group = 0; group < groups(); ++group) {
    for (uint32_t position = view_.first_needed(group, end, first); position < end; ++position) {
      if (view_.place(group, position) > BlockPlace::kHost) return false;
    }
  }
  ++stats_.probes;
  stats_.probe_blocks += end - first;
  return true;
}

bool Cache::Impl::probe(Request& request, uint32_t group, uint32_t from, OpKind kind) {
  const TransferPath path = *path_of(kind);
  const TimePoint now = clock_.now();
  // What may be in the store has to be asked for before it can be fetched.
  const bool leads_to_get = kind == OpKind::kStoreExists && costs_.may_probe(path, now) &&
                            costs_.wants_probe(TransferPath::kStoreToHost, now);
  if (!leads_to_get && !costs_.wants_probe(path, now)) return false;
  const uint32_t blocks_max = std::min(
      config_.job_blocks_max, kind == OpKind::kStoreExists
                                  ? costs_.probe_blocks()
                                  : costs_.probe_blocks(path, block_bytes_[group], poll_interval_));
  if (room(8) < blocks_max) return false;
  // The request is not waited for: its keys are of use if it still lives when a question is
  // answered.
  Job* job = jobs_.start(kind, now + costs_.probe_time(path), request.index, request.generation);
  if (job == nullptr) return false;
  job->is_probe = true;
  const GroupId group_id(static_cast<uint8_t>(group));
  const BlockPlace place = view_.place(group, from);
  uint32_t end = from;
  while (end < view_.block_count() && end - from < blocks_max && view_.place(group, end) == place) {
    ++end;
  }
  // Else room for one of these blocks could be made by evicting another.
  hold_path(end);
  for (uint32_t position = from; position < end; ++position) {
    const BlockKey& key = request.keys[position];
    if (kind == OpKind::kStoreExists) {
      add_item(*job, kNoNode, key, group_id, position);
      continue;
    }
    const NodeId node = kind == OpKind::kDiskGet ? view_.node(group, position)
                                                 : node_for_fill(request.keys, group_id, position);
    if (node == kNoNode || fills_.is_filling(node)) break;
    const std::optional<SlotId> slot = acquire_for(node);
    if (!slot) break;
    begin_fill(*job, node, *slot, key, group_id, position);
  }
  unhold_path(end);
  if (!job->items.empty()) {
    ++stats_.probes;
    stats_.probe_blocks += job->items.size();
  }
  submit_or_cancel(job);
  return true;
}

}  // namespace tiercel
