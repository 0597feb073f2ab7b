// SPDX-License-Identifier: Apache-2.0
#include "tier/disk/rank_disk.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include <poll.h>

#include "tiercel/frame.h"

#include "base/quantity.h"
#include "tier/disk/rank_disk_impl.h"

namespace tiercel {
namespace {

constexpr uint32_t kOperationsMax = 4096;

// Tokens of requests: below kRecordToken the index of an operation.
constexpr uint64_t kRecordToken = uint64_t{1} << 32;
constexpr uint64_t kHeaderToken = uint64_t{2} << 32;
constexpr uint64_t kSyncDataToken = uint64_t{3} << 32;
constexpr uint64_t kSyncMetadataToken = uint64_t{4} << 32;

Error refuse(const std::string& option, const std::string& value, const std::string& allowed) {
  return Error(Code::kInvalid, "rank disk: " + option + " is " + value + "; allowed: " + allowed);
}

Status check(const RankDiskOptions& options, const SlotGeometry& geometry,
             const DiskHeader& header) {
  if (options.operations_max == 0 || options.operations_max > kOperationsMax) {
    return refuse("operations_max", std::to_string(options.operations_max),
                  "1 to " + std::to_string(kOperationsMax));
  }
  if (options.rank >= geometry.rank_count()) {
    return refuse("rank", std::to_string(options.rank),
                  "0 to " + std::to_string(geometry.rank_count() - 1));
  }
  if (header.kind != DiskFileKind::kMetadata || header.rank != options.rank) {
    return Error(Code::kInvalid,
                 "rank disk: the header is of " +
                     std::string(header.kind == DiskFileKind::kMetadata ? "a metadata file"
                                                                        : "a data file") +
                     " of rank " + std::to_string(header.rank) +
                     "; wanted: of the metadata file of rank " + std::to_string(options.rank));
  }
  const std::string positive = "more than 0";
  if (options.sync == DiskSync::kInterval && options.sync_interval <= Duration(0)) {
    return refuse("sync_interval", format_duration(options.sync_interval), positive);
  }
  if (options.stuck_after <= Duration(0)) {
    return refuse("stuck_after", format_duration(options.stuck_after), positive);
  }
  const BreakerOptions& breaker = options.breaker;
  if (breaker.failures == 0) return refuse("breaker.failures", "0", "at least 1");
  if (breaker.probes == 0) return refuse("breaker.probes", "0", "at least 1");
  if (!(breaker.failure_share > 0)) {
    return refuse("breaker.failure_share", std::to_string(breaker.failure_share), positive);
  }
  if (breaker.backoff <= Duration(0)) {
    return refuse("breaker.backoff", format_duration(breaker.backoff), positive);
  }
  if (breaker.backoff_max < breaker.backoff) {
    return refuse("breaker.backoff_max", format_duration(breaker.backoff_max),
                  "at least breaker.backoff, which is " + format_duration(breaker.backoff));
  }
  return {};
}

int64_t system_unix_time_s() { return std::time(nullptr); }

DiskRecord record_of(const Frame& frame, const DiskPut& put) {
  DiskRecord record;
  record.slot = put.slot;
  record.group = put.group;
  record.slice = frame.slice;
  record.codec = frame.codec;
  record.token_count = frame.token_count;
  record.stored_bytes = frame.stored_bytes;
  record.raw_bytes = frame.raw_bytes;
  record.payload_checksum = frame.checksum;
  record.name_space = frame.name_space;
  record.key = frame.key;
  record.parent = put.parent;
  return record;
}

// Long enough to cost nothing, short enough to see a clock that runs in another way.
constexpr Duration kWaitMax = std::chrono::milliseconds(200);

void wait_readable(int fd, Duration longest) {
  const Duration bounded = std::clamp(longest, Duration(0), kWaitMax);
  pollfd descriptor{.fd = fd, .events = POLLIN, .revents = 0};
  // Rounded up: to wake a little late costs nothing, to wake too early costs a round.
  const auto limit = std::chrono::ceil<std::chrono::milliseconds>(bounded);
  static_cast<void>(::poll(&descriptor, 1, static_cast<int>(limit.count())));
}

}  // namespace

std::string_view to_string(DiskSync sync) {
  switch (sync) {
    case DiskSync::kNone:
      return "none";
    case DiskSync::kData:
      return "data";
    case DiskSync::kInterval:
      return "interval";
  }
  return "unknown";
}

Result<std::unique_ptr<RankDisk>> RankDisk::create(RankDiskOptions options,
                                                   const SlotGeometry& geometry,
                                                   const DiskHeader& header, uint64_t next_sequence,
                                                   std::unique_ptr<DiskIo> io, const Clock& clock,
                                                   std::function<int64_t()> unix_time_s) {
  return RankDiskFactory::create(RankDiskProtections{}, std::move(options), geometry, header,
                                 next_sequence, std::move(io), clock, std::move(unix_time_s));
}

Result<std::unique_ptr<RankDisk>> RankDiskFactory::create(
    const RankDiskProtections& protections, RankDiskOptions options, const SlotGeometry& geometry,
    const DiskHeader& header, uint64_t next_sequence, std::unique_ptr<DiskIo> io,
    const Clock& clock, std::function<int64_t()> unix_time_s) {
  TIERCEL_TRY(check(options, geometry, header));
  if (!unix_time_s) unix_time_s = system_unix_time_s;
  return std::make_unique<RankDiskImpl>(protections, std::move(options), geometry, header,
                                        next_sequence, std::move(io), clock,
                                        std::move(unix_time_s));
}

RankDiskImpl::RankDiskImpl(const RankDiskProtections& protections, RankDiskOptions options,
                           const SlotGeometry& geometry, const DiskHeader& header,
                           uint64_t next_sequence, std::unique_ptr<DiskIo> io, const Clock& clock,
                           std::function<int64_t()> unix_time_s)
    : protections_(protections),
      options_(std::move(options)),
      geometry_(geometry),
      clock_(clock),
      unix_time_s_(std::move(unix_time_s)),
      next_sequence_(std::max(next_sequence, header.first_sequence)),
      breaker_(options_.breaker, clock),
      operations_(options_.operations_max),
      slots_under_way_(geometry.slot_count_max()),
      payload_checksums_(std::exchange(options_.payload_checksums, {})),
      has_checksum_(geometry.slot_count_max(), !payload_checksums_.empty()),
      // A slot each, a record write each; a header and two syncs.
      queue_(2 * size_t{options_.operations_max} + 3),
      syncers_{DiskSyncer(DiskFile::kData, kSyncDataToken),
               DiskSyncer(DiskFile::kMetadata, kSyncMetadataToken)},
      records_(header.folder_id, options_.operations_max, kRecordToken),
      header_(header, kHeaderToken, protections.alternate_headers),
      io_(std::move(io)) {
  payload_checksums_.resize(geometry.slot_count_max());
  for (std::vector<uint32_t>* list :
       {&free_, &ended_, &waiting_puts_, &round_, &waiting_clears_, &clears_}) {
    list->reserve(options_.operations_max);
  }
  for (uint32_t index = options_.operations_max; index > 0; --index) free_.push_back(index - 1);
  // What an earlier process has put and did not come to sync is this one's to sync.
  if (options_.sync == DiskSync::kInterval && protections.sync_left_over) {
    for (DiskSyncer& file : syncers_) file.note_write();
    full_sync_due_ = clock.now() + options_.sync_interval;
  }
}

std::optional<uint64_t> RankDiskImpl::place_of(SlotId slot, GroupId group,
                                               std::span<const std::byte> memory) const {
  const std::optional<uint64_t> offset = geometry_.offset(slot, group, options_.rank);
  if (!offset || memory.size() != geometry_.stride_bytes(group, options_.rank) ||
      reinterpret_cast<uintptr_t>(memory.data()) % kDiskAlignmentBytes != 0) {
    return std::nullopt;
  }
  return disk_slot_offset(*offset);
}

uint64_t RankDiskImpl::payload_bytes(GroupId group) const {
  return geometry_.payload_bytes(group, options_.rank);
}

std::span<const std::byte, kFrameBytes> RankDiskImpl::frame_in(std::span<const std::byte> slot,
                                                               GroupId group) const {
  return slot_frame(slot, payload_bytes(group));
}

Code RankDiskImpl::take(DiskOperation::Kind kind, uint64_t token, uint32_t* index) {
  if (is_closed_) return Code::kUnavailable;
  if (free_.empty()) return Code::kBusy;
  // Last: what is admitted must not be refused for another reason.
  const std::optional<Breaker::Ticket> ticket = breaker_.admit();
  if (!ticket) return Code::kUnavailable;
  *index = free_.back();
  free_.pop_back();
  DiskOperation& operation = operations_[*index];
  operation.kind = kind;
  operation.token = token;
  operation.code = Code::kOk;
  operation.ticket = ticket;
  operation.asked.reset();
  return Code::kOk;
}

void RankDiskImpl::begin_transfer(uint32_t index, DiskIoKind kind, uint64_t offset,
                                  std::span<std::byte> memory) {
  DiskTransfer& transfer = operations_[index].transfer;
  transfer = DiskTransfer(
      {.token = index, .kind = kind, .file = DiskFile::kData, .offset = offset, .memory = memory});
  queue_.push(transfer.request());
}

Code RankDiskImpl::start(const DiskGet& get) {
  const std::optional<uint64_t> place = place_of(get.slot, get.group, get.memory);
  if (!place) return Code::kInvalid;
  uint32_t index = 0;
  const Code taken = take(DiskOperation::Kind::kGet, get.token, &index);
  if (taken != Code::kOk) return taken;
  operations_[index].slot = get.slot;
  operations_[index].group = get.group;
  operations_[index].memory = get.memory;
  begin_transfer(index, DiskIoKind::kRead, *place, get.memory);
  return Code::kOk;
}

Code RankDiskImpl::start(const DiskPut& put) {
  const std::optional<uint64_t> place = place_of(put.slot, put.group, put.memory);
  if (!place) return Code::kInvalid;
  const Result<Frame> frame = decode_frame(frame_in(put.memory, put.group));
  if (!frame || frame->group != put.group || frame->stored_bytes > payload_bytes(put.group)) {
    return Code::kInvalid;
  }
  // A second one at once would leave a mixture of both, under a record of either.
  if (slots_under_way_[put.slot.value()] && protections_.one_put_per_slot) {
    return is_closed_ ? Code::kUnavailable : Code::kBusy;
  }
  uint32_t index = 0;
  const Code taken = take(DiskOperation::Kind::kPut, put.token, &index);
  if (taken != Code::kOk) return taken;
  DiskOperation& operation = operations_[index];
  operation.record = record_of(*frame, put);
  operation.record.sequence = next_sequence_++;
  operation.record.written_unix_s = unix_time_s_();
  operation.data_sync_failures = syncer(DiskFile::kData).failures();
  slots_under_way_[put.slot.value()] = true;
  payload_checksums_[put.slot.value()] = frame->checksum;
  has_checksum_[put.slot.value()] = true;
  begin_transfer(index, DiskIoKind::kWrite, *place, put.memory);
  return Code::kOk;
}

Code RankDiskImpl::start_clear(uint64_t token) {
  uint32_t index = 0;
  const Code taken = take(DiskOperation::Kind::kClear, token, &index);
  if (taken != Code::kOk) return taken;
  operations_[index].first_sequence = next_sequence_;
  waiting_clears_.push_back(index);
  return Code::kOk;
}

void RankDiskImpl::flush() {
  const TimePoint now = clock_.now();
  advance(now);
  hand_over(now);
}

size_t RankDiskImpl::poll(std::span<DiskDone> out) {
  step();
  const size_t count = std::min(out.size(), ended_.size());
  for (size_t i = 0; i < count; ++i) {
    const DiskOperation& operation = operations_[ended_[i]];
    out[i] = {operation.token, operation.code};
    free_.push_back(ended_[i]);
  }
  ended_.erase(ended_.begin(), ended_.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

// True if anything has moved.
bool RankDiskImpl::step() {
  std::array<DiskIoCompletion, 64> completions;
  size_t moved = 0;
  // Ends: nothing is handed over meanwhile.
  for (size_t count = completions.size(); count == completions.size();) {
    count = io_->poll(completions);
    for (size_t i = 0; i < count; ++i) take_completion(completions[i]);
    moved += count;
  }
  // Answers first, also what follows from them: what has arrived by now was not late.
  const TimePoint now = clock_.now();
  advance(now);
  check_stuck(now);
  moved += hand_over(now);
  return moved > 0;
}

size_t RankDiskImpl::hand_over(TimePoint now) {
  const std::span<const DiskIoRequest> requests = queue_.hand_over(*io_);
  with_io_ += requests.size();
  for (const DiskIoRequest& request : requests) {
    if (request.token < kRecordToken) note_asked(&operations_[request.token].asked, now);
  }
  return requests.size();
}

void RankDiskImpl::take_completion(const DiskIoCompletion& completion) {
  --with_io_;
  ++stats_.requests;
  const int64_t result = completion.result;
  if (completion.token < kRecordToken) {
    take_slot_answer(static_cast<uint32_t>(completion.token), result);
  } else if (completion.token < kHeaderToken) {
    stats_.written_bytes += static_cast<uint64_t>(std::max<int64_t>(result, 0));
    records_.take(completion.token - kRecordToken, result, queue_);
  } else if (completion.token == kHeaderToken) {
    stats_.written_bytes += static_cast<uint64_t>(std::max<int64_t>(result, 0));
    take_header_answer(result);
  } else {
    DiskSyncer& file =
        syncer(completion.token == kSyncDataToken ? DiskFile::kData : DiskFile::kMetadata);
    const uint64_t failures = file.failures();
    if (file.take(result, queue_)) ++stats_.syncs;
    stats_.failed_syncs += file.failures() - failures;
  }
}

bool RankDiskImpl::holds_what_its_record_says(const DiskOperation& operation) const {
  const size_t slot = operation.slot.value();
  if (!has_checksum_[slot] || !protections_.compare_with_record) return true;
  const Result<Frame> frame = decode_frame(frame_in(operation.memory, operation.group));
  // What is no frame at all is seen by whoever verifies it.
  return !frame || frame->checksum == payload_checksums_[slot];
}

void RankDiskImpl::take_slot_answer(uint32_t index, int64_t result) {
  DiskOperation& operation = operations_[index];
  const bool is_get = operation.kind == DiskOperation::Kind::kGet;
  (is_get ? stats_.read_bytes : stats_.written_bytes) +=
      static_cast<uint64_t>(std::max<int64_t>(result, 0));
  operation.asked.reset();
  if (!operation.transfer.take(result)) {
    queue_.push(operation.transfer.request());
    return;
  }
  const Code code = operation.transfer.code();
  if (is_get) {
    const bool is_right = code != Code::kOk || holds_what_its_record_says(operation);
    return end(index, is_right ? code : Code::kCorrupt);
  }
  syncer(DiskFile::kData).note_write();
  if (code != Code::kOk) return fail_put(index, code);
  waiting_puts_.push_back(index);
}

void RankDiskImpl::note_outcome(DiskOperation& operation) {
  if (!operation.ticket) return;
  const Breaker::Ticket ticket = *std::exchange(operation.ticket, std::nullopt);
  // A full disk, or a file that ends too early, is an answer too.
  if (operation.code == Code::kUnavailable) {
    breaker_.failed(ticket, operation.code);
  } else {
    breaker_.succeeded(ticket);
  }
}

void RankDiskImpl::end(uint32_t index, Code code) {
  DiskOperation& operation = operations_[index];
  operation.code = code;
  operation.asked.reset();
  note_outcome(operation);
  if (operation.kind == DiskOperation::Kind::kGet) ++stats_.gets;
  if (operation.kind == DiskOperation::Kind::kPut) {
    ++stats_.puts;
    if (code == Code::kOk) stats_.payload_bytes += operation.record.stored_bytes;
    slots_under_way_[operation.record.slot.value()] = false;
  }
  if (operation.kind != DiskOperation::Kind::kClear && code != Code::kOk) ++stats_.failed;
  ended_.push_back(index);
}

void RankDiskImpl::note_asked(std::optional<TimePoint>* asked, TimePoint now) {
  *asked = now;
  stuck_check_at_ = std::min(stuck_check_at_, now + options_.stuck_after);
}

void RankDiskImpl::check_stuck(TimePoint now) {
  if (now < stuck_check_at_ || !protections_.stuck_opens) return;
  stuck_check_at_ = kNoDeadline;
  const auto check = [&](std::optional<Breaker::Ticket>* ticket, std::optional<TimePoint> asked) {
    if (!*ticket || !asked) return;
    if (now - *asked < options_.stuck_after) {
      stuck_check_at_ = std::min(stuck_check_at_, *asked + options_.stuck_after);
      return;
    }
    breaker_.trip(*std::exchange(*ticket, std::nullopt), Code::kTimeout,
                  "no answer within " + format_duration(options_.stuck_after));
  };
  for (DiskOperation& operation : operations_) check(&operation.ticket, operation.asked);
  check(&full_sync_.ticket, full_sync_.asked);
}

TimePoint RankDiskImpl::next_due() const {
  // Nothing else tells of what has ended and found no room in the last poll().
  if (!ended_.empty()) return clock_.now();
  const bool can_be_stuck = with_io_ > 0 && protections_.stuck_opens;
  const TimePoint stuck = can_be_stuck ? stuck_check_at_ : kNoDeadline;
  return std::min({stuck, full_sync_due_.value_or(kNoDeadline), breaker_.probe_at()});
}

StoreHealth RankDiskImpl::health() const {
  StoreHealth health;
  const BreakerState state = breaker_.state();
  if (state != BreakerState::kClosed) {
    health.condition =
        state == BreakerState::kOpen ? StoreCondition::kOpen : StoreCondition::kProbing;
    health.cause = breaker_.cause();
  }
  health.opened = breaker_.counters().opened;
  health.refused = breaker_.counters().refused;
  return health;
}

Status RankDiskImpl::wait_for_io(TimePoint deadline) {
  while (true) {
    const bool has_moved = step();
    if (under_way() == 0 && !full_sync_.is_running && with_io_ == 0) return {};
    const TimePoint now = clock_.now();
    // Without a descriptor time is virtual: nothing comes of waiting.
    const bool is_hopeless = completion_fd() < 0 && !has_moved;
    if (now >= deadline || is_hopeless) {
      return Error(Code::kTimeout, "rank disk: " + std::to_string(under_way()) +
                                       " operations and " + std::to_string(with_io_) +
                                       " requests are still with the disk (" + describe() +
                                       "); poll and close again once it answers");
    }
    if (completion_fd() >= 0) wait_readable(completion_fd(), deadline - now);
  }
}

Status RankDiskImpl::close(TimePoint deadline) {
  is_closed_ = true;
  full_sync_due_.reset();
  TIERCEL_TRY(wait_for_io(deadline));
  const bool is_dirty =
      std::ranges::any_of(syncers_, [](const DiskSyncer& syncer) { return syncer.is_dirty(); });
  if (options_.sync == DiskSync::kNone || !is_dirty) return {};
  begin_full_sync(clock_.now());
  TIERCEL_TRY(wait_for_io(deadline));
  if (full_sync_.code == Code::kOk) return {};
  return Error(full_sync_.code, "rank disk: the last sync failed (" + describe() +
                                    "); what was put lately may be lost if the power fails");
}

}  // namespace tiercel
