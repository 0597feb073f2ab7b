// SPDX-License-Identifier: Apache-2.0
//
// A rank's disk over files in memory, with what its tests need around it: blocks whose bytes follow
// from a number, requests that are counted, faults, and a restart that reads the files as the
// folder does.
#pragma once

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/checksum.h"
#include "base/manual_clock.h"
#include "base/random.h"
#include "support/faulty_disk_io.h"
#include "support/memory_disk.h"
#include "tier/disk/disk_samples.h"
#include "tier/disk/rank_disk_protections.h"

namespace tiercel::testing {

struct alignas(kDiskAlignmentBytes) DiskPage {
  std::byte bytes[kDiskAlignmentBytes];
};

// Whole pages at an address that direct I/O takes.
class PageBuffer {
 public:
  explicit PageBuffer(uint64_t bytes) : pages_(bytes / kDiskAlignmentBytes) {}
  std::span<std::byte> span() {
    return {pages_.data()->bytes, pages_.size() * kDiskAlignmentBytes};
  }

 private:
  std::vector<DiskPage> pages_;
};

// Passes everything on and keeps what was asked for.
class RecordingDiskIo final : public DiskIo {
 public:
  RecordingDiskIo(std::unique_ptr<DiskIo> inner, std::vector<std::vector<DiskIoRequest>>* batches)
      : inner_(std::move(inner)), batches_(batches) {}
  size_t capacity() const override { return inner_->capacity(); }
  void submit(std::span<const DiskIoRequest> requests) override {
    batches_->emplace_back(requests.begin(), requests.end());
    inner_->submit(requests);
  }
  size_t poll(std::span<DiskIoCompletion> out) override { return inner_->poll(out); }
  int completion_fd() const override { return inner_->completion_fd(); }
  std::string describe() const override { return inner_->describe(); }

 private:
  std::unique_ptr<DiskIo> inner_;
  std::vector<std::vector<DiskIoRequest>>* batches_;
};

// Blocks by number: the key tells the number, and the payload follows from it.
inline BlockKey key_of_block(uint64_t id) {
  BlockKey key;
  const uint64_t words[] = {id, id * 0x9e3779b97f4a7c15, ~id, id ^ 0x5555555555555555};
  static_assert(sizeof words == sizeof key.bytes);
  std::memcpy(key.bytes.data(), words, sizeof words);
  return key;
}
inline uint64_t block_of_key(const BlockKey& key) {
  uint64_t id = 0;
  std::memcpy(&id, key.bytes.data(), sizeof id);
  return id;
}
// No sector of it is another block's.
inline void fill_payload(uint64_t id, std::span<std::byte> payload) {
  const BlockKey key = key_of_block(id + 1);
  for (size_t done = 0; done < payload.size();) {
    const size_t length = std::min(std::max(done, key.bytes.size()), payload.size() - done);
    std::memcpy(&payload[done], done == 0 ? key.bytes.data() : payload.data(), length);
    done += length;
  }
}

// std::ranges::equal takes most of a test's time where tests are not optimized.
inline bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

inline Frame frame_of_block(uint64_t id, GroupId group, uint64_t payload_bytes) {
  Frame frame;
  frame.name_space = digest_of<Namespace>("namespace");
  frame.key = key_of_block(id);
  frame.group = group;
  frame.slice = Slice{0, 1};
  frame.token_count = 16;
  frame.stored_bytes = payload_bytes;
  frame.raw_bytes = payload_bytes;
  return frame;
}

// Payload, then the frame.
inline void fill_slot(uint64_t id, GroupId group, uint64_t payload_bytes,
                      std::span<std::byte> slot) {
  const std::span<std::byte> payload = slot.first(payload_bytes);
  fill_payload(id, payload);
  Frame frame = frame_of_block(id, group, payload_bytes);
  frame.checksum = crc32c(payload);
  encode_frame(frame, slot_frame(slot, payload_bytes));
}

// What a reader of a slot does with what the record says: nothing of it is believed.
inline bool is_proved(const DiskRecord& record, std::span<const std::byte> slot) {
  if (record.stored_bytes > slot.size() - kFrameBytes) return false;
  Frame expected;
  expected.name_space = record.name_space;
  expected.key = record.key;
  expected.group = record.group;
  expected.slice = record.slice;
  expected.token_count = record.token_count;
  expected.codec = record.codec;
  expected.stored_bytes = record.stored_bytes;
  expected.raw_bytes = record.raw_bytes;
  uint32_t checksum = 0;
  return check_frame(slot_frame(slot, record.stored_bytes), expected, &checksum) == Code::kOk &&
         crc32c(slot.first(record.stored_bytes)) == checksum;
}

class RankDiskRig {
 public:
  static constexpr uint64_t kPayloadBytes = 5000;
  static constexpr uint64_t kSmallPayloadBytes = 100;
  static constexpr uint32_t kSlots = 32;  // of group 0

  RankDiskRig() {
    SlotGeometryOptions shape;
    shape.payload_bytes = {{kPayloadBytes}, {kSmallPayloadBytes}};
    shape.extent_count = 2;
    shape.slots_per_extent = {kSlots / 2, 8};
    geometry.emplace(SlotGeometry::create(shape).value());
    options.breaker.failures = 1u << 30;  // tests of the breaker say otherwise
    DiskHeader header;
    header.kind = DiskFileKind::kMetadata;
    header.folder_id = sample_folder_id();
    header.payload_bytes = {kPayloadBytes, kSmallPayloadBytes};
    header.slots_per_extent = shape.slots_per_extent;
    header.extent_count = shape.extent_count;
    std::array<std::byte, kDiskHeaderBytes> page;
    encode_disk_header(header, page);
    disk.put(DiskFile::kMetadata, disk_header_offset(0), page);
    disk.resize(DiskFile::kMetadata,
                2 * kDiskHeaderBytes + geometry->slot_count_max() * kDiskRecordBytes);
    disk.resize(DiskFile::kData, kDiskHeaderBytes + geometry->tier_bytes(0));
  }

  // A start of the process over the disk as it stands.
  void open() {
    const std::optional<DiskHeader> header = read_header();
    ASSERT_TRUE(header) << "no header is valid";
    uint64_t next_sequence = header->first_sequence;
    for (const auto& [slot, record] : all_records()) {
      next_sequence = std::max(next_sequence, record.sequence + 1);
    }
    auto below = std::make_unique<FaultyDiskIo>(
        disk.open({.queue_depth = queue_depth, .order_seed = order_seed}));
    faulty = below.get();
    rank_disk =
        RankDiskFactory::create(protections, options, *geometry, *header, next_sequence,
                                std::make_unique<RecordingDiskIo>(std::move(below), &batches),
                                clock, [this] { return unix_time_s; })
            .value();
  }
  // The process ends; what is with the disk is carried out or was cut off.
  void stop() {
    rank_disk.reset();
    faulty = nullptr;
    memory_.clear();
  }

  uint64_t stride(GroupId group = GroupId(0)) const { return geometry->stride_bytes(group, 0); }

  // The token is the block's number.
  Code put(uint64_t id, uint32_t slot, GroupId group = GroupId(0),
           std::optional<BlockKey> parent = std::nullopt) {
    PageBuffer buffer(stride(group));
    fill_slot(id, group, geometry->payload_bytes(group, 0), buffer.span());
    const Code code = rank_disk->start(DiskPut{.token = id,
                                               .slot = SlotId(slot),
                                               .group = group,
                                               .memory = buffer.span(),
                                               .parent = parent});
    if (code == Code::kOk) memory_.emplace(id, std::move(buffer));
    return code;
  }
  Code get(uint64_t token, uint32_t slot, GroupId group = GroupId(0)) {
    PageBuffer buffer(stride(group));
    const Code code = rank_disk->start(
        DiskGet{.token = token, .slot = SlotId(slot), .group = group, .memory = buffer.span()});
    if (code == Code::kOk) memory_.emplace(token, std::move(buffer));
    return code;
  }

  // One poll; what ended goes to `ended`.
  size_t poll() {
    std::array<DiskDone, 16> done;
    const size_t count = rank_disk->poll(done);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_TRUE(ended.emplace(done[i].token, done[i].code).second)
          << "operation " << done[i].token << " ended twice";
      if (!keeps_memory) memory_.erase(done[i].token);
    }
    return count;
  }
  // Until nothing moves any more.
  void settle() {
    rank_disk->flush();
    for (int quiet = 0; quiet < 3;) {
      const uint64_t before = rank_disk->stats().requests;
      const bool moved = poll() > 0 || rank_disk->stats().requests != before;
      quiet = moved ? 0 : quiet + 1;
    }
  }
  Code code_of(uint64_t token) const {
    const auto found = ended.find(token);
    return found == ended.end() ? Code::kInternal : found->second;
  }
  Code put_now(uint64_t id, uint32_t slot) {
    const Code code = put(id, slot);
    if (code != Code::kOk) return code;
    settle();
    return code_of(id);
  }

  // As the folder reads them. Without a header that counts nothing does.
  std::optional<DiskHeader> read_header() const {
    std::optional<DiskHeader> best;
    for (const uint64_t generation : {0, 1}) {
      const auto header = decode_disk_header(std::span<const std::byte, kDiskHeaderBytes>(
          contents_of(DiskFile::kMetadata, disk_header_offset(generation), kDiskHeaderBytes)));
      if (header && (!best || header->generation > best->generation)) best = *header;
    }
    return best;
  }
  std::map<uint32_t, DiskRecord> all_records() const {
    std::map<uint32_t, DiskRecord> records;
    for (uint32_t slot = 0; slot < geometry->slot_count_max(); ++slot) {
      const auto record = decode_disk_record(
          std::span<const std::byte, kDiskRecordBytes>(
              contents_of(DiskFile::kMetadata, disk_record_offset(SlotId(slot)), kDiskRecordBytes)),
          sample_folder_id(), SlotId(slot));
      if (record) records.emplace(slot, *record);
    }
    return records;
  }
  std::map<uint32_t, DiskRecord> records() const {
    std::map<uint32_t, DiskRecord> records = all_records();
    const std::optional<DiskHeader> header = read_header();
    std::erase_if(records, [&](const auto& entry) {
      return !header || entry.second.sequence < header->first_sequence;
    });
    return records;
  }
  std::span<const std::byte> slot_bytes(uint32_t slot, GroupId group = GroupId(0)) const {
    return contents_of(DiskFile::kData,
                       disk_slot_offset(geometry->offset(SlotId(slot), group, 0).value()),
                       stride(group));
  }

  // The block that a reader finds in a slot; 0: none. `wrong` is told of bytes that were proved and
  // are another block's.
  uint64_t block_in(uint32_t slot, const std::map<uint32_t, DiskRecord>& records,
                    std::string* wrong, bool verifies = true) const {
    const auto found = records.find(slot);
    if (found == records.end()) return 0;
    const DiskRecord& record = found->second;
    const std::span<const std::byte> bytes = slot_bytes(slot, record.group);
    if (verifies && !is_proved(record, bytes)) return 0;
    const uint64_t id = block_of_key(record.key);
    PageBuffer expected(bytes.size());
    fill_slot(id, record.group, geometry->payload_bytes(record.group, 0), expected.span());
    if (!same_bytes(expected.span(), bytes) || record.key != key_of_block(id)) {
      *wrong = "slot " + std::to_string(slot) + " has other bytes than block " + std::to_string(id);
    }
    return id;
  }
  uint64_t block_in(uint32_t slot) const {
    std::string wrong;
    const uint64_t id = block_in(slot, records(), &wrong);
    EXPECT_EQ(wrong, "");
    return id;
  }

  size_t request_count(DiskIoKind kind, DiskFile file) const {
    size_t count = 0;
    for (const auto& batch : batches) {
      count += static_cast<size_t>(std::ranges::count_if(
          batch, [&](const auto& r) { return r.kind == kind && r.file == file; }));
    }
    return count;
  }
  std::span<std::byte> memory_of(uint64_t token) { return memory_.at(token).span(); }

  MemoryDisk disk;
  ManualClock clock;
  int64_t unix_time_s = 1'800'000'000;
  std::optional<SlotGeometry> geometry;
  RankDiskOptions options;
  RankDiskProtections protections;
  uint32_t queue_depth = 64;
  std::optional<uint64_t> order_seed;
  bool keeps_memory = false;  // of what has ended
  FaultyDiskIo* faulty = nullptr;
  std::vector<std::vector<DiskIoRequest>> batches;  // what was submitted
  std::map<uint64_t, Code> ended;                   // by token

 private:
  std::span<const std::byte> contents_of(DiskFile file, uint64_t offset, uint64_t bytes) const {
    return disk.contents(file).subspan(offset, bytes);
  }

  std::map<uint64_t, PageBuffer> memory_;  // of what is under way, by token

 public:
  std::unique_ptr<RankDisk> rank_disk;  // goes first: its requests are in the memory above
};

}  // namespace tiercel::testing
