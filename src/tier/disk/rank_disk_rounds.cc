// SPDX-License-Identifier: Apache-2.0
//
// What operations wait for together: rounds of puts, clears, and syncs of everything.
#include <algorithm>
#include <utility>

#include "tier/disk/rank_disk_impl.h"

namespace tiercel {

// Never waits: whatever cannot go on now goes on after the next answer.
void RankDiskImpl::advance(TimePoint now) {
  advance_round(now);
  advance_clears(now);
  advance_full_sync(now);
  for (DiskSyncer& syncer : syncers_) syncer.start(queue_);
}

void RankDiskImpl::note_asked(std::span<const uint32_t> indexes, TimePoint now) {
  for (const uint32_t index : indexes) note_asked(&operations_[index].asked, now);
}

void RankDiskImpl::fail_put(uint32_t index, Code code) {
  DiskOperation& operation = operations_[index];
  operation.code = code;
  operation.asked.reset();
  note_outcome(operation);
  if (!protections_.empty_failed_slots) return end(index, code);
  waiting_puts_.push_back(index);
}

void RankDiskImpl::advance_round(TimePoint now) {
  while (true) {
    switch (round_stage_) {
      case RoundStage::kNone:
        if (waiting_puts_.empty()) return;
        begin_round(now);
        break;
      case RoundStage::kSyncData:
        if (!syncer(DiskFile::kData).has_ended(round_sync_)) return;
        drop_unsafe_payloads();
        begin_records(now);
        break;
      case RoundStage::kWriteRecords:
        if (!records_.has_ended()) return;
        end_records(now);
        break;
      case RoundStage::kSyncMetadata:
        if (!syncer(DiskFile::kMetadata).has_ended(round_sync_)) return;
        end_round();
        break;
    }
  }
}

void RankDiskImpl::begin_round(TimePoint now) {
  std::swap(round_, waiting_puts_);
  std::ranges::sort(round_, {}, [this](uint32_t index) { return operations_[index].record.slot; });
  const bool has_payloads = std::ranges::any_of(
      round_, [this](uint32_t index) { return operations_[index].code == Code::kOk; });
  if (options_.sync != DiskSync::kData || !has_payloads || !protections_.sync_payload) {
    return begin_records(now);
  }
  DiskSyncer& data = syncer(DiskFile::kData);
  round_sync_failures_ = data.failures();
  round_sync_ = data.request();
  round_stage_ = RoundStage::kSyncData;
  note_asked(round_, now);
}

// Puts whose payload a sync has failed to write back fail; their slots are emptied in this round.
void RankDiskImpl::drop_unsafe_payloads() {
  const DiskSyncer& data = syncer(DiskFile::kData);
  for (const uint32_t index : round_) {
    DiskOperation& operation = operations_[index];
    const uint64_t before =
        protections_.remember_failed_syncs ? operation.data_sync_failures : round_sync_failures_;
    if (operation.code != Code::kOk || before == data.failures()) continue;
    operation.code = data.failure();
    note_outcome(operation);
  }
}

void RankDiskImpl::begin_records(TimePoint now) {
  records_.begin();
  for (const uint32_t index : round_) {
    const DiskOperation& operation = operations_[index];
    if (operation.code == Code::kOk) {
      records_.add(operation.record);
    } else {
      records_.add_empty(operation.record.slot);
    }
  }
  round_sync_failures_ = syncer(DiskFile::kMetadata).failures();
  records_.start(queue_);
  round_stage_ = RoundStage::kWriteRecords;
  note_asked(round_, now);
  if (protections_.record_before_done) return;
  for (const uint32_t index : round_) end(index, operations_[index].code);
  round_.clear();
}

void RankDiskImpl::end_records(TimePoint now) {
  syncer(DiskFile::kMetadata).note_write();
  const bool is_synced = options_.sync == DiskSync::kData && protections_.sync_record;
  size_t kept = 0;
  for (size_t i = 0; i < round_.size(); ++i) {
    const uint32_t index = round_[i];
    const Code code = operations_[index].code;
    if (code != Code::kOk) {
      end(index, code);  // emptied, or not even that was possible
    } else if (records_.code(i) != Code::kOk) {
      fail_put(index, records_.code(i));
    } else if (is_synced) {
      round_[kept++] = index;
    } else {
      end(index, Code::kOk);
    }
  }
  round_.resize(kept);
  round_stage_ = RoundStage::kNone;
  if (round_.empty()) return;
  round_sync_ = syncer(DiskFile::kMetadata).request();
  round_stage_ = RoundStage::kSyncMetadata;
  note_asked(round_, now);
}

void RankDiskImpl::end_round() {
  const DiskSyncer& metadata = syncer(DiskFile::kMetadata);
  for (const uint32_t index : round_) {
    if (round_sync_failures_ == metadata.failures()) {
      end(index, Code::kOk);
    } else {
      fail_put(index, metadata.failure());
    }
  }
  round_.clear();
  round_stage_ = RoundStage::kNone;
}

void RankDiskImpl::advance_clears(TimePoint now) {
  const bool waits_for_sync =
      header_stage_ == HeaderStage::kSyncBefore || header_stage_ == HeaderStage::kSync;
  const DiskSyncer& metadata = syncer(DiskFile::kMetadata);
  if (waits_for_sync && metadata.has_ended(header_sync_)) {
    if (metadata.failures() != header_sync_failures_) {
      end_clears(metadata.failure());
    } else if (header_stage_ == HeaderStage::kSync) {
      header_.accept();
      note_header_written(now);
    } else {
      header_is_durable_ = true;
      write_header(now);
    }
  }
  if (header_stage_ == HeaderStage::kNone && !waiting_clears_.empty()) begin_clears(now);
}

void RankDiskImpl::note_header_written(TimePoint now) {
  if (is_second_header_) return end_clears(Code::kOk);
  is_second_header_ = true;
  write_header(now);
}

void RankDiskImpl::begin_clears(TimePoint now) {
  std::swap(clears_, waiting_clears_);
  if (header_is_durable_ || !protections_.sync_before_clear) return write_header(now);
  header_sync_failures_ = syncer(DiskFile::kMetadata).failures();
  header_sync_ = syncer(DiskFile::kMetadata).request();
  header_stage_ = HeaderStage::kSyncBefore;
  note_asked(clears_, now);
}

void RankDiskImpl::write_header(TimePoint now) {
  // Oldest first: the last one covers the others.
  const uint64_t first_sequence = protections_.bound_of_clear_at_start
                                      ? operations_[clears_.back()].first_sequence
                                      : next_sequence_;
  header_sync_failures_ = syncer(DiskFile::kMetadata).failures();
  header_.start(first_sequence, queue_);
  header_stage_ = HeaderStage::kWrite;
  note_asked(clears_, now);
}

void RankDiskImpl::take_header_answer(int64_t result) {
  if (!header_.take(result, queue_)) return;
  DiskSyncer& metadata = syncer(DiskFile::kMetadata);
  metadata.note_write();
  if (header_.code() != Code::kOk) return end_clears(header_.code());
  if (!protections_.sync_clear) {
    header_.accept();
    return note_header_written(clock_.now());
  }
  header_sync_ = metadata.request();
  header_stage_ = HeaderStage::kSync;
  note_asked(clears_, clock_.now());
}

void RankDiskImpl::end_clears(Code code) {
  for (const uint32_t index : clears_) end(index, code);
  clears_.clear();
  header_stage_ = HeaderStage::kNone;
  is_second_header_ = false;
}

void RankDiskImpl::advance_full_sync(TimePoint now) {
  uint64_t failures = 0;
  bool is_dirty = false;
  bool has_ended = true;
  for (size_t file = 0; file < kDiskFileCount; ++file) {
    failures += syncers_[file].failures();
    is_dirty |= syncers_[file].is_dirty();
    has_ended &= syncers_[file].has_ended(full_sync_.syncs[file]);
  }
  if (full_sync_.is_running) {
    if (!has_ended) return;
    full_sync_.is_running = false;
    full_sync_.asked.reset();
    const bool is_well = failures == full_sync_.failures_before;
    full_sync_.code = is_well ? Code::kOk : Code::kUnavailable;
    if (const auto ticket = std::exchange(full_sync_.ticket, std::nullopt)) {
      if (is_well) {
        breaker_.succeeded(*ticket);
      } else {
        breaker_.failed(*ticket, full_sync_.code);
      }
    }
  }
  if (options_.sync != DiskSync::kInterval || is_closed_ || !is_dirty) return;
  if (!full_sync_due_) full_sync_due_ = now + options_.sync_interval;
  if (now < *full_sync_due_) return;
  full_sync_.ticket = breaker_.admit();
  if (full_sync_.ticket) {
    begin_full_sync(now);
  } else {
    full_sync_due_ = now + options_.sync_interval;
  }
}

void RankDiskImpl::begin_full_sync(TimePoint now) {
  full_sync_due_.reset();
  full_sync_.is_running = true;
  full_sync_.failures_before = 0;
  for (size_t file = 0; file < kDiskFileCount; ++file) {
    DiskSyncer& syncer = syncers_[file];
    const bool is_protected = file == static_cast<size_t>(DiskFile::kData)
                                  ? protections_.sync_payload
                                  : protections_.sync_record;
    full_sync_.syncs[file] = syncer.is_dirty() && is_protected ? syncer.request() : 0;
    full_sync_.failures_before += syncer.failures();
  }
  note_asked(&full_sync_.asked, now);
}

}  // namespace tiercel
