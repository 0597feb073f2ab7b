// SPDX-License-Identifier: Apache-2.0
//
// The metadata file of rank 0 decides what a folder is: as long as it has no header, the folder is
// not made, whatever else lies there. So making one writes that header last, and starting one anew
// takes it away last.

#include "tier/disk/disk_folder.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/error_text.h"
#include "base/quantity.h"
#include "tier/disk/disk_file.h"
#include "tier/disk/disk_geometry.h"
#include "tier/disk/disk_owner.h"
#include "tier/disk/disk_rank_folder.h"
#include "tier/disk/disk_record_reader.h"
#include "tier/disk/disk_scan.h"

namespace tiercel {
namespace {

constexpr size_t kInstanceLengthMax = 64;
// Keeps the deadline in the range of a time point.
constexpr Duration kLockWaitMax = std::chrono::hours(24);

Status check_instance(const std::string& name) {
  const auto is_allowed = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  if (!name.empty() && name.size() <= kInstanceLengthMax && name[0] != '.' &&
      std::all_of(name.begin(), name.end(), is_allowed)) {
    return {};
  }
  return Error(Code::kInvalid,
               "disk_instance is " + quoted_text(name) +
                   "; allowed: 1 to 64 of A-Z a-z 0-9 . _ -, not beginning with a dot");
}

Status check_path(const std::string& path) {
  if (!path.empty() && path.find('\0') == std::string::npos) return {};
  return Error(Code::kInvalid, "disk_path is " + quoted_path(path) + "; allowed: a folder");
}

// With the option that the folder comes from.
Result<DiskPath> named(Result<DiskPath> folder) {
  if (folder) return folder;
  return Error(folder.code(), "disk_path: " + folder.error().message());
}

Result<DiskFolderId> random_folder_id() {
  DiskFolderId id;
  size_t done = 0;
  while (done < id.size()) {
    const ssize_t count = ::getrandom(id.data() + done, id.size() - done, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return Error(Code::kUnavailable, "no random folder id: getrandom: " + error_text(errno));
    }
    done += static_cast<size_t>(count);
  }
  return id;
}

std::string counted(uint64_t count, const std::string& thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

std::vector<uint64_t> payloads_of(const PayloadBytes& payload_bytes, uint32_t rank) {
  std::vector<uint64_t> payloads;
  for (const auto& ranks : payload_bytes) payloads.push_back(ranks[rank]);
  return payloads;
}

// What the files were made for and what is asked for, or "" if that is the same.
std::string shape_difference(const DiskHeader& header, const PayloadBytes& payload_bytes,
                             uint32_t rank) {
  const auto rank_count = static_cast<uint32_t>(payload_bytes[0].size());
  if (header.rank_count != rank_count) {
    return counted(header.rank_count, "rank") + ", not " + std::to_string(rank_count);
  }
  if (header.payload_bytes.size() != payload_bytes.size()) {
    return counted(header.payload_bytes.size(), "group") + ", not " +
           std::to_string(payload_bytes.size());
  }
  for (size_t group = 0; group < payload_bytes.size(); ++group) {
    if (header.payload_bytes[group] == payload_bytes[group][rank]) continue;
    return "blocks of " + exact_bytes(header.payload_bytes[group]) + " in group " +
           std::to_string(group) + " on rank " + std::to_string(rank) + ", not " +
           exact_bytes(payload_bytes[group][rank]);
  }
  return "";
}

Error descriptor_error(const DiskPath& file) {
  return disk_error(file.path, "duplicate the descriptor of", errno);
}

class Folder final : public DiskFolder {
 public:
  Folder(const DiskFolderOptions& options, SlotGeometry geometry)
      : options_(options), geometry_(std::move(geometry)) {}

  ~Folder() override {
    // Not in a child that was forked off: the owner lives.
    if (owner_pid_ == ::getpid()) remove_disk_owner(instance_);
  }

  Status start();

  const SlotGeometry& geometry() const override { return geometry_; }
  const DiskFolderId& id() const override { return id_; }
  uint32_t rank_count() const override { return geometry_.rank_count(); }
  const std::vector<std::string>& notes() const override { return notes_; }
  Result<DiskContents> read_contents(const Namespace& name_space, bool purge) override;
  Result<DiskRankFiles> files(uint32_t rank) const override;
  void forget_payload_checksums() override { payload_checksums_ = {}; }

 private:
  Result<DiskRankFolder> open_rank(uint32_t rank, DiskOpen how);
  // What is wrong with what is there, and the same with what to do.
  std::optional<Error> fault_of(const DiskRankFolder& rank) const;
  Error advise(const Error& fault) const;

  void name_owner();
  Status open_left_overs();
  Status make_anew();
  Status empty_all();
  Status lay_out_all();

  bool belongs(const DiskRankFolder& rank) const;
  Status adopt();
  Status adopt_rank(DiskRankFolder& rank);
  Status note_new_size(const SlotGeometry& before);
  void note_what_is_repaired(const DiskRankFolder& rank);
  void note_lost_header(const DiskRankFolder& rank);

  DiskHeader header_for(uint32_t rank) const;
  void set_direct_io();
  void note(std::string text) { notes_.push_back(std::move(text)); }

  const DiskFolderOptions options_;
  SlotGeometry geometry_;
  DiskFolderId id_{};
  DiskPath root_;
  DiskPath instance_;
  TimePoint lock_deadline_;
  std::vector<DiskRankFolder> ranks_;
  std::vector<DiskRankFolder> left_overs_;  // of a larger world; only while a folder is made
  std::vector<uint64_t> next_sequence_;
  std::vector<std::vector<uint32_t>> payload_checksums_;  // [rank]; empty: not read, or forgotten
  bool direct_ = false;
  pid_t owner_pid_ = 0;
  std::vector<std::string> notes_;
};

Result<DiskRankFolder> Folder::open_rank(uint32_t rank, DiskOpen how) {
  TIERCEL_TRY_ASSIGN(DiskRankFolder folder,
                     DiskRankFolder::open(instance_, rank, how, lock_deadline_));
  TIERCEL_TRY(folder.load());
  return folder;
}

Error Folder::advise(const Error& fault) const {
  return Error(fault.code(), fault.message() +
                                 "; nothing was overwritten; choose another disk_instance (it is " +
                                 quoted_text(options_.instance) +
                                 ") or disk_path, or set disk_reset to lose what is there");
}

std::optional<Error> Folder::fault_of(const DiskRankFolder& rank) const {
  if (rank.refusal()) {
    const bool is_version = rank.refusal()->code() == Code::kUnsupported;
    return Error(is_version ? Code::kInvalid : Code::kCorrupt, rank.refusal()->message());
  }
  const std::optional<DiskHeader>& header = rank.lost_header() ? rank.data_header() : rank.header();
  if (!header || rank.rank() >= rank_count()) return std::nullopt;
  const std::string difference = shape_difference(*header, options_.payload_bytes, rank.rank());
  if (difference.empty()) return std::nullopt;
  return Error(Code::kInvalid,
               "disk tier " + quoted_path(instance_.path) + " was made for " + difference);
}

Status Folder::start() {
  lock_deadline_ = SystemClock().now() + std::min(options_.lock_wait, kLockWaitMax);
  TIERCEL_TRY_ASSIGN(root_, named(open_disk_folder(options_.path, DiskOpen::kMake)));
  TIERCEL_TRY_ASSIGN(instance_, named(open_disk_folder(root_, options_.instance, DiskOpen::kMake)));
  std::optional<Error> fault;
  for (uint32_t rank = 0; rank < rank_count(); ++rank) {
    TIERCEL_TRY_ASSIGN(DiskRankFolder folder, open_rank(rank, DiskOpen::kMake));
    if (!fault) fault = fault_of(folder);
    // Before further ranks are opened, which makes them where they are not there.
    if (fault && !options_.reset) return advise(*fault);
    ranks_.push_back(std::move(folder));
  }
  const bool anew = fault || !ranks_[0].header() || ranks_[0].is_data_lost();
  if (anew) {
    TIERCEL_TRY(open_left_overs());
  } else {
    TIERCEL_TRY_ASSIGN(geometry_,
                       fitted_disk_geometry(options_.payload_bytes,
                                            ranks_[0].header()->slots_per_extent, options_.bytes));
  }
  for (uint32_t rank = 0; rank < rank_count(); ++rank) {
    TIERCEL_TRY(check_file_size_limit(
        std::max(disk_data_bytes(geometry_, rank), disk_metadata_bytes(geometry_))));
  }
  name_owner();
  if (fault) note("started anew, empty, because of disk_reset: " + fault->message());
  for (const DiskRankFolder& rank : ranks_) {
    if (!fault && rank.lost_header()) note_lost_header(rank);
  }
  if (anew && !fault && !ranks_[0].lost_header() &&
      std::any_of(ranks_.begin(), ranks_.end(),
                  [](const DiskRankFolder& rank) { return rank.header().has_value(); })) {
    note("the files of rank 0 are gone, so that no block of the other ranks is of use");
  }
  TIERCEL_TRY(anew ? make_anew() : adopt());
  for (DiskRankFolder& rank : ranks_) {
    for (std::string& text : rank.take_notes()) note(std::move(text));
    next_sequence_.push_back(std::max<uint64_t>(rank.header()->first_sequence, 1));
  }
  set_direct_io();
  return {};
}

// Only others' messages need it: a full disk must not keep the blocks on it from being used.
void Folder::name_owner() {
  owner_pid_ = ::getpid();
  const Status status = write_disk_owner(instance_);
  if (status) return;
  remove_disk_owner(instance_);
  note("others will not be told who has " + quoted_path(instance_.path) + ": " +
       status.error().message());
}

// Ranks of a larger world that was here before.
Status Folder::open_left_overs() {
  for (uint32_t rank = rank_count(); rank < kRankCountMax; ++rank) {
    Result<DiskRankFolder> folder = open_rank(rank, DiskOpen::kWrite);
    if (folder.code() == Code::kNotFound) continue;
    if (!folder) return folder.error();
    if (const std::optional<Error> fault = fault_of(*folder); fault && !options_.reset) {
      return advise(*fault);
    }
    left_overs_.push_back(*std::move(folder));
  }
  return {};
}

Status Folder::make_anew() {
  for (; !left_overs_.empty(); left_overs_.pop_back()) {
    TIERCEL_TRY(left_overs_.back().remove(instance_));
  }
  TIERCEL_TRY(empty_all());
  TIERCEL_TRY_ASSIGN(id_, random_folder_id());
  if (const Status status = lay_out_all(); !status) {
    // Gives back what had been reserved; the error is what counts.
    static_cast<void>(empty_all());
    return status;
  }
  note("made " + quoted_path(instance_.path) + ": " + counted(geometry_.slot_count_max(), "slot") +
       " on " + counted(rank_count(), "rank") + ", at most " +
       format_bytes(disk_files_bytes(geometry_)));
  return {};
}

Status Folder::empty_all() {
  for (auto rank = ranks_.rbegin(); rank != ranks_.rend(); ++rank) TIERCEL_TRY(rank->empty());
  return {};
}

Status Folder::lay_out_all() {
  for (DiskRankFolder& rank : ranks_) {
    TIERCEL_TRY(rank.lay_out(geometry_, options_.preallocate));
    TIERCEL_TRY(rank.sync_folder());
  }
  TIERCEL_TRY(sync_disk_file(instance_));
  TIERCEL_TRY(sync_disk_file(root_));
  for (auto rank = ranks_.rbegin(); rank != ranks_.rend(); ++rank) {
    TIERCEL_TRY(rank->write_first_headers(header_for(rank->rank())));
  }
  return {};
}

bool Folder::belongs(const DiskRankFolder& rank) const {
  if (!rank.header() || rank.is_data_lost()) return true;  // it will be made
  const auto is_ours = [&](const DiskHeader& header) {
    return header.folder_id == id_ && header.rank == rank.rank();
  };
  return is_ours(*rank.header()) &&
         rank.header()->slots_per_extent == ranks_[0].header()->slots_per_extent &&
         (!rank.data_header() || is_ours(*rank.data_header()));
}

Status Folder::adopt() {
  id_ = ranks_[0].header()->folder_id;
  if (!std::all_of(ranks_.begin(), ranks_.end(),
                   [&](const DiskRankFolder& rank) { return belongs(rank); })) {
    // Under a new id no record counts, whichever file is the wrong one.
    TIERCEL_TRY_ASSIGN(id_, random_folder_id());
    note("files of " + quoted_path(instance_.path) +
         " do not belong together (was something copied into it?); no block of them is used");
  }
  for (DiskRankFolder& rank : ranks_) TIERCEL_TRY(adopt_rank(rank));
  return {};
}

Status Folder::adopt_rank(DiskRankFolder& rank) {
  note_what_is_repaired(rank);
  if (!rank.header() || rank.is_data_lost()) {
    TIERCEL_TRY(rank.empty());
    TIERCEL_TRY(rank.lay_out(geometry_, options_.preallocate));
    TIERCEL_TRY(rank.sync_folder());
    return rank.write_first_headers(header_for(rank.rank()));
  }
  const Result<SlotGeometry> before =
      SlotGeometry::create({.payload_bytes = options_.payload_bytes,
                            .extent_count = rank.header()->extent_count,
                            .slots_per_extent = rank.header()->slots_per_extent,
                            .last_extent_slots = rank.header()->last_extent_slots});
  if (!before) {
    return advise(
        Error(Code::kCorrupt, quoted_path(rank.metadata().path) + ": " + before.error().message()));
  }
  if (rank.rank() == 0) TIERCEL_TRY(note_new_size(*before));
  return rank.fit(header_for(rank.rank()), *before, geometry_, options_.preallocate);
}

void Folder::note_what_is_repaired(const DiskRankFolder& rank) {
  if (rank.lost_header()) return;  // that has been told
  const std::string number = "rank " + std::to_string(rank.rank());
  if (!rank.header() || rank.is_data_lost()) {
    note(number + " had no files, or none that were whole; they are made anew, and no block of " +
         quoted_path(instance_.path) + " is used");
  } else if (!rank.data_header()) {
    note("the header of the data file of " + number + " was damaged; it is written anew");
  }
}

void Folder::note_lost_header(const DiskRankFolder& rank) {
  note("both headers of the metadata file of rank " + std::to_string(rank.rank()) +
       " are damaged (" + rank.lost_header()->message() +
       "); its files are made anew, and no block of " + quoted_path(instance_.path) +
       " is used. A loss of power does this only on a disk that confirms what it has not kept");
}

Status Folder::note_new_size(const SlotGeometry& before) {
  const uint32_t slots = geometry_.slot_count_max();
  const uint32_t slots_before = before.slot_count_max();
  if (slots == slots_before) return {};
  const std::string change = quoted_path(instance_.path) +
                             (slots > slots_before ? " has grown from " : " has shrunk from ") +
                             std::to_string(slots_before) + " to " + counted(slots, "slot");
  if (slots > slots_before) {
    note(change);
    return {};
  }
  const DiskHeader& header = *ranks_[0].header();
  uint64_t blocks = 0;
  DiskRecordReader reader(record_source(ranks_[0].metadata()), slots, slots_before);
  TIERCEL_TRY(reader.for_each([&](SlotId slot, DiskRecordReader::RecordBytes bytes) {
    const Result<DiskRecord> record = decode_disk_record(bytes, header.folder_id, slot);
    if (record && record->sequence >= header.first_sequence) ++blocks;
  }));
  note(change + "; " + counted(blocks, "block") + (blocks == 1 ? " has" : " have") + " gone");
  return {};
}

DiskHeader Folder::header_for(uint32_t rank) const {
  const SlotGeometryOptions geometry = geometry_.options();
  return {.kind = DiskFileKind::kMetadata,
          .folder_id = id_,
          .rank = rank,
          .rank_count = rank_count(),
          .payload_bytes = payloads_of(options_.payload_bytes, rank),
          .slots_per_extent = geometry.slots_per_extent,
          .extent_count = geometry.extent_count,
          .last_extent_slots = geometry.last_extent_slots};
}

void Folder::set_direct_io() {
  direct_ = options_.direct;
  for (const DiskRankFolder& rank : ranks_) {
    if (!direct_) break;
    const Status status = set_direct(rank.data(), true);
    if (status) continue;
    direct_ = false;
    note("data files are read and written through the page cache, since " +
         quoted_path(rank.data().path) + " has no direct I/O: " + status.error().message());
  }
  if (direct_ || !options_.direct) return;
  for (const DiskRankFolder& rank : ranks_) static_cast<void>(set_direct(rank.data(), false));
}

Result<DiskContents> Folder::read_contents(const Namespace& name_space, bool purge) {
  std::vector<DiskScanRank> files;
  files.reserve(ranks_.size());
  for (const DiskRankFolder& rank : ranks_) {
    files.push_back({record_source(rank.metadata()), rank.header()->first_sequence});
  }
  TIERCEL_TRY_ASSIGN(DiskScan scan, scan_disk_records(files, geometry_, id_, name_space, purge));
  next_sequence_ = std::move(scan.next_sequence);
  payload_checksums_ = std::move(scan.payload_checksums);
  return std::move(scan.contents);
}

Result<DiskRankFiles> Folder::files(uint32_t rank) const {
  if (rank >= rank_count()) {
    return Error(Code::kInvalid, "rank is " + std::to_string(rank) + "; allowed: 0 to " +
                                     std::to_string(rank_count() - 1));
  }
  const DiskRankFolder& folder = ranks_[rank];
  DiskRankFiles files;
  files.data.reset(::fcntl(folder.data().fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!files.data) return descriptor_error(folder.data());
  files.metadata.reset(::fcntl(folder.metadata().fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!files.metadata) return descriptor_error(folder.metadata());
  files.direct = direct_;
  files.header = *folder.header();
  files.next_sequence = next_sequence_[rank];
  if (!payload_checksums_.empty()) files.payload_checksums = payload_checksums_[rank];
  return files;
}

}  // namespace

Result<std::unique_ptr<DiskFolder>> DiskFolder::open(const DiskFolderOptions& options) {
  TIERCEL_TRY(check_path(options.path));
  TIERCEL_TRY(check_instance(options.instance));
  TIERCEL_TRY_ASSIGN(SlotGeometry geometry,
                     new_disk_geometry(options.payload_bytes, options.bytes));
  auto folder = std::make_unique<Folder>(options, std::move(geometry));
  TIERCEL_TRY(folder->start());
  return folder;
}

}  // namespace tiercel
