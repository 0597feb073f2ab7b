// SPDX-License-Identifier: Apache-2.0
#include "cli/disk_check.h"

#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/core.h>

#include "tiercel/frame.h"

#include "base/checksum.h"
#include "cli/disk_repair.h"
#include "tier/disk/disk_record_reader.h"

namespace tiercel {
namespace {

constexpr size_t kPlacesMax = 5;
constexpr uint32_t kSlotsPerStep = 1024;
constexpr Duration kSettleTime = std::chrono::seconds(1);
constexpr Duration kSettleInterval = std::chrono::milliseconds(50);

struct Suspect {
  SlotId slot;
  uint32_t rank = 0;
  DiskFault fault = DiskFault::kRecord;
};

// One rank's files, with what its header says.
class RankReader {
 public:
  static Result<RankReader> create(const DiskRankLook& look) {
    TIERCEL_TRY_ASSIGN(SlotGeometry geometry, geometry_of(*look.metadata.header));
    return RankReader(look, std::move(geometry));
  }

  uint32_t rank() const { return look_->rank; }
  const DiskRankLook& look() const { return *look_; }
  const DiskHeader& header() const { return *look_->metadata.header; }

  Result<DiskRecord> read_record(SlotId slot) const {
    std::array<std::byte, kDiskRecordBytes> bytes{};
    TIERCEL_TRY(read_disk_file(look_->metadata.file, disk_record_offset(slot), bytes));
    return decode_disk_record(bytes, header().folder_id, slot);
  }

  // Nothing if frame and payload are those of the record.
  std::optional<DiskFault> check(const DiskRecord& record) {
    const std::optional<uint64_t> offset = geometry_.offset(record.slot, record.group, 0);
    if (!offset || record.stored_bytes > geometry_.payload_bytes(record.group, 0)) {
      return DiskFault::kRecord;
    }
    slot_.resize(geometry_.stride_bytes(record.group, 0));
    const uint64_t at = disk_slot_offset(*offset);
    const Result<size_t> length = read_disk_file(look_->data.file, at, slot_);
    if (!length) return DiskFault::kUnreadable;
    // Read once; whoever serves requests needs the memory more.
    static_cast<void>(::posix_fadvise(look_->data.file.fd.get(), static_cast<off_t>(at),
                                      static_cast<off_t>(slot_.size()), POSIX_FADV_DONTNEED));
    if (*length < slot_.size()) return DiskFault::kFrame;
    const Frame expected{.name_space = record.name_space,
                         .key = record.key,
                         .group = record.group,
                         .slice = record.slice,
                         .token_count = record.token_count,
                         .codec = record.codec,
                         .stored_bytes = record.stored_bytes,
                         .raw_bytes = record.raw_bytes};
    uint32_t checksum = 0;
    const std::span<const std::byte> slot = slot_;
    if (check_frame(slot_frame(slot, geometry_.payload_bytes(record.group, 0)), expected,
                    &checksum) != Code::kOk ||
        checksum != record.payload_checksum) {
      return DiskFault::kFrame;
    }
    if (crc32c(slot.first(record.stored_bytes)) != checksum) return DiskFault::kPayload;
    return std::nullopt;
  }

 private:
  RankReader(const DiskRankLook& look, SlotGeometry geometry)
      : look_(&look), geometry_(std::move(geometry)) {}

  const DiskRankLook* look_;
  SlotGeometry geometry_;
  std::vector<std::byte> slot_;
};

class Checker {
 public:
  Checker(const DiskCheckOptions& options, const DiskCheckContext& context)
      : options_(options), context_(context) {}

  Result<DiskCheckReport> run() {
    std::optional<DiskRepair> repair;
    if (options_.repair) {
      TIERCEL_TRY_ASSIGN(repair, DiskRepair::open(options_.path, options_.instance));
    }
    TIERCEL_TRY_ASSIGN(const DiskInstanceLook look,
                       look_at_disk_instance(options_.path, options_.instance));
    report_.path = look.path;
    // The lock is ours then.
    if (!repair) report_.holder = look.holder;
    const std::vector<const DiskRankLook*> ranks =
        usable_ranks(look, [&](uint32_t rank, const std::string& what) {
          add(DiskFault::kFiles, fmt::format("rank {} {}", rank, what));
        });
    for (const DiskRankLook* rank : ranks) {
      TIERCEL_TRY_ASSIGN(RankReader reader, RankReader::create(*rank));
      readers_.push_back(std::move(reader));
      TIERCEL_TRY(check_other_header(*rank));
    }
    if (!readers_.empty()) {
      TIERCEL_TRY(check_records(ranks));
      for (RankReader& reader : readers_) TIERCEL_TRY(check_payloads(reader));
      if (report_.holder) TIERCEL_TRY(look_again());
    }
    if (report_.holder && context_.stopped()) {
      report_.unsettled = suspects_.size();
      suspects_.clear();
    }
    for (const Suspect& suspect : suspects_) {
      add(suspect.fault, fmt::format("rank {} slot {}", suspect.rank, suspect.slot.value()));
    }
    report_.complete = !context_.stopped();
    report_.remaining_faults = report_.fault_count();
    if (repair && report_.complete) TIERCEL_TRY(carry_out(*repair));
    return std::move(report_);
  }

 private:
  void add(DiskFault fault, std::string place) {
    DiskFaultFigures& figures = report_.faults[static_cast<size_t>(fault)];
    if (figures.places.size() < kPlacesMax) figures.places.push_back(std::move(place));
    ++figures.count;
  }

  // A metadata file has two headers, so that one is left when the other tears. Both are whole but
  // for that.
  Status check_other_header(const DiskRankLook& rank) {
    std::vector<std::byte> page(kDiskHeaderBytes);
    TIERCEL_TRY(read_disk_file(rank.metadata.file,
                               disk_header_offset(rank.metadata.header->generation + 1), page));
    const auto other = decode_disk_header(std::span<const std::byte, kDiskHeaderBytes>(page));
    if (other) return {};
    add(DiskFault::kFiles, fmt::format("rank {} metadata: the second of its two headers: {}",
                                       rank.rank, other.error().message()));
    damaged_headers_.push_back(rank.rank);
    return {};
  }

  Status check_records(const std::vector<const DiskRankLook*>& ranks) {
    DiskSurveyContext survey;
    survey.stop = context_.stop;
    survey.bad = [&](uint32_t rank, SlotId slot) {
      suspects_.push_back({slot, rank, DiskFault::kRecord});
    };
    TIERCEL_TRY_ASSIGN(survey_, survey_disk(ranks, survey));
    report_.slots = survey_.counts;
    for (uint32_t slot = 0; slot < survey_.slots.size(); ++slot) {
      if (survey_.slots[slot].state == SlotState::kDisagreeing) {
        suspects_.push_back({SlotId(slot), readers_.front().rank(), DiskFault::kRanks});
      }
    }
    all_ = uint64_t{survey_.slots.size()} * readers_.size();
    return {};
  }

  // Of the blocks only: what else has a record is free, and may be overwritten in part.
  Status check_payloads(RankReader& reader) {
    const auto end = static_cast<uint32_t>(survey_.slots.size());
    for (uint32_t begin = 0; begin < end; begin += kSlotsPerStep) {
      const uint32_t step_end = std::min(end, begin + std::min(end - begin, kSlotsPerStep));
      DiskRecordReader records(reader.look().metadata.file, begin, step_end);
      TIERCEL_TRY(records.for_each([&](SlotId slot, DiskRecordReader::RecordBytes bytes) {
        if (context_.stopped() || survey_.slots[slot.value()].state != SlotState::kBlock) return;
        const auto record = decode_disk_record(bytes, reader.header().folder_id, slot);
        // While it is in use a block may go.
        if (!record) return;
        ++report_.checked_payloads;
        report_.checked_bytes += record->stored_bytes;
        if (const auto fault = reader.check(*record)) {
          suspects_.push_back({slot, reader.rank(), *fault});
        }
        if (context_.progress) context_.progress(done_ + slot.value(), all_);
      }));
      if (context_.stopped()) return {};
    }
    done_ += end;
    return {};
  }

  // What one rank's slot is found to be now.
  Result<std::optional<DiskFault>> check_now(const Suspect& suspect) {
    std::optional<DiskRecord> first;
    for (RankReader& reader : readers_) {
      const Result<DiskRecord> record = reader.read_record(suspect.slot);
      if (!record && record.code() == Code::kUnavailable) return record.error();
      const bool is_first = &reader == &readers_.front();
      if (is_first && record) first = *record;
      if (suspect.fault == DiskFault::kRanks && !is_first) {
        const bool is_here = record.has_value();
        if (is_here != first.has_value()) return std::optional(DiskFault::kRanks);
        if (is_here &&
            (record->key != first->key || record->group != first->group ||
             record->parent != first->parent || record->name_space != first->name_space)) {
          return std::optional(DiskFault::kRanks);
        }
      }
      if (suspect.fault == DiskFault::kRanks || reader.rank() != suspect.rank) continue;
      if (record.code() == Code::kNotFound) return std::optional<DiskFault>();
      if (!record || !is_slice_of_rank(record->slice, reader.rank(), reader.header().rank_count)) {
        return std::optional(DiskFault::kRecord);
      }
      return reader.check(*record);
    }
    return std::optional<DiskFault>();
  }

  Status look_again() {
    const TimePoint end = context_.clock.now() + kSettleTime;
    while (!suspects_.empty() && !context_.stopped()) {
      std::vector<Suspect> still;
      for (const Suspect& suspect : suspects_) {
        TIERCEL_TRY_ASSIGN(const std::optional<DiskFault> fault, check_now(suspect));
        if (fault) {
          still.push_back({suspect.slot, suspect.rank, *fault});
        } else {
          ++report_.changed_meanwhile;
        }
      }
      suspects_ = std::move(still);
      if (suspects_.empty() || context_.clock.now() >= end) return {};
      std::this_thread::sleep_for(kSettleInterval);
    }
    return {};
  }

  // The slot goes on every rank, since a block needs all of them; and stale records go too, since
  // with a newer one gone an older one would count again.
  Status carry_out(DiskRepair& repair) {
    std::vector<bool> is_dropped(survey_.slots.size());
    for (const Suspect& suspect : suspects_) is_dropped[suspect.slot.value()] = true;
    report_.dropped = static_cast<uint64_t>(std::count(is_dropped.begin(), is_dropped.end(), true));
    for (size_t slot = 0; report_.dropped > 0 && slot < survey_.slots.size(); ++slot) {
      const SlotState state = survey_.slots[slot].state;
      if (is_dropped[slot]) continue;
      if (state != SlotState::kDuplicate && state != SlotState::kMisplaced) continue;
      is_dropped[slot] = true;
      ++report_.dropped_stale;
    }
    for (const RankReader& reader : readers_) {
      const DiskHeader& header = reader.header();
      TIERCEL_TRY(repair.drop(reader.rank(), is_dropped));
      if (std::count(damaged_headers_.begin(), damaged_headers_.end(), reader.rank()) > 0) {
        TIERCEL_TRY(repair.write_second_header(reader.rank(), header));
        ++report_.mended_headers;
      }
      const auto& data_header = reader.look().data.header;
      if (data_header.code() == Code::kCorrupt) {
        TIERCEL_TRY(repair.write_data_header(reader.rank(), header));
        ++report_.mended_headers;
      }
    }
    report_.remaining_faults -= suspects_.size() + report_.mended_headers;
    return {};
  }

  const DiskCheckOptions& options_;
  const DiskCheckContext& context_;
  DiskCheckReport report_;
  DiskSurvey survey_;
  std::vector<RankReader> readers_;  // of the usable ranks
  std::vector<uint32_t> damaged_headers_;
  std::vector<Suspect> suspects_;
  uint64_t done_ = 0, all_ = 0;
};

}  // namespace

std::string_view to_string(DiskFault fault) {
  constexpr std::string_view kNames[] = {"files", "record",  "ranks",
                                         "frame", "payload", "unreadable"};
  static_assert(std::size(kNames) == kDiskFaultCount);
  return kNames[static_cast<size_t>(fault)];
}

uint64_t DiskCheckReport::fault_count() const {
  uint64_t count = 0;
  for (const DiskFaultFigures& figures : faults) count += figures.count;
  return count;
}

Result<DiskCheckReport> check_disk(const DiskCheckOptions& options,
                                   const DiskCheckContext& context) {
  return Checker(options, context).run();
}

}  // namespace tiercel
