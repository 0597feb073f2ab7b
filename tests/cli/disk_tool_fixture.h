// SPDX-License-Identifier: Apache-2.0
//
// Disk tiers with blocks in them, whole to the last byte, for tests of the tools that look at them.
#pragma once

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tiercel/frame.h"

#include "base/checksum.h"
#include "cli/command_fixture.h"
#include "key/samples.h"
#include "tier/disk/disk_folder.h"

namespace tiercel {

class DiskToolTest : public CommandTest {
 protected:
  DiskToolTest() {
    options_.path = folder_.path("tier");
    options_.bytes = 1 << 20;
    options_.payload_bytes = {{1000, 5000}};
    options_.direct = false;
    options_.lock_wait = Duration(0);
  }

  std::unique_ptr<DiskFolder> open() {
    Result<std::unique_ptr<DiskFolder>> folder = DiskFolder::open(options_);
    EXPECT_TRUE(folder) << folder.error().to_string();
    return folder ? *std::move(folder) : nullptr;
  }

  // A block on all ranks; its payload is made of its key.
  struct Block {
    uint32_t slot = 0;
    std::string key;
    std::string parent = {};  // empty: none
    uint64_t sequence = 1;
    uint8_t group = 0;
    std::string name_space = "namespace";
    int64_t written_unix_s = 1'700'000'000;
  };
  void write_block(const DiskFolder& folder, const Block& block) {
    for (uint32_t rank = 0; rank < folder.rank_count(); ++rank) {
      write_slot(folder, rank, block);
      write_record(folder, rank, block);
    }
  }
  void write_slot(const DiskFolder& folder, uint32_t rank, const Block& block) {
    const GroupId group(block.group);
    std::string slot(folder.geometry().stride_bytes(group, rank), '\0');
    const std::string payload = payload_of(folder, rank, block);
    std::memcpy(slot.data(), payload.data(), payload.size());
    const DiskRecord record = record_of(folder, rank, block);
    std::array<std::byte, kFrameBytes> frame;
    encode_frame(Frame{.name_space = record.name_space,
                       .key = record.key,
                       .group = record.group,
                       .slice = record.slice,
                       .token_count = record.token_count,
                       .stored_bytes = record.stored_bytes,
                       .raw_bytes = record.raw_bytes,
                       .writer_epoch = 7,
                       .checksum = record.payload_checksum},
                 frame);
    std::memcpy(slot.data() + payload.size(), frame.data(), kFrameBytes);
    overwrite(file(rank, "data"), slot_offset(folder, rank, block.slot, block.group), slot);
  }
  void write_record(const DiskFolder& folder, uint32_t rank, const Block& block) {
    std::array<std::byte, kDiskRecordBytes> bytes;
    encode_disk_record(record_of(folder, rank, block), folder.id(), bytes);
    overwrite(file(rank, "metadata"), disk_record_offset(SlotId(block.slot)),
              {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }

  static uint64_t slot_offset(const DiskFolder& folder, uint32_t rank, uint32_t slot,
                              uint8_t group = 0) {
    return disk_slot_offset(*folder.geometry().offset(SlotId(slot), GroupId(group), rank));
  }
  static DiskRecord record_of(const DiskFolder& folder, uint32_t rank, const Block& block) {
    const std::string payload = payload_of(folder, rank, block);
    DiskRecord record;
    record.slot = SlotId(block.slot);
    record.group = GroupId(block.group);
    record.slice = Slice{static_cast<uint16_t>(rank), static_cast<uint16_t>(folder.rank_count())};
    record.token_count = 16;
    record.sequence = block.sequence;
    record.written_unix_s = block.written_unix_s;
    record.stored_bytes = record.raw_bytes = payload.size();
    record.payload_checksum = crc32c(std::as_bytes(std::span(payload)));
    record.name_space = testing::digest_of<Namespace>(block.name_space);
    record.key = testing::digest_of<BlockKey>(block.key);
    if (!block.parent.empty()) record.parent = testing::digest_of<BlockKey>(block.parent);
    return record;
  }
  static std::string payload_of(const DiskFolder& folder, uint32_t rank, const Block& block) {
    std::string payload(folder.geometry().payload_bytes(GroupId(block.group), rank), '\0');
    for (size_t i = 0; i < payload.size(); ++i) {
      payload[i] = static_cast<char>(block.key[i % block.key.size()] + static_cast<int>(i / 7));
    }
    return payload;
  }

  std::string file(uint32_t rank, const std::string& name) const {
    return options_.path + "/" + options_.instance + "/rank" + std::to_string(rank) + "/" + name;
  }
  static void overwrite(const std::string& path, uint64_t offset, std::string_view bytes) {
    std::fstream stream(path, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(static_cast<std::streamoff>(offset));
    stream << bytes;
    EXPECT_TRUE(stream.flush()) << path;
  }
  static void flip_bit(const std::string& path, uint64_t offset, int bit = 0) {
    std::fstream stream(path, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(offset));
    const int byte = stream.get();
    stream.seekp(static_cast<std::streamoff>(offset));
    stream.put(static_cast<char>(byte ^ (1 << bit)));
    EXPECT_TRUE(stream.flush()) << path;
  }

  // Of every file of the tier but `owner`, which is for messages only.
  std::map<std::string, std::string> snapshot() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(options_.path)) {
      if (entry.is_regular_file() && entry.path().filename() != "owner") {
        files[entry.path().string()] = testing::read_file(entry.path().string());
      }
    }
    return files;
  }

  // A command over the tier with its figures: the first instance's.
  template <typename Command>
  nlohmann::json figures_of(Command&& command, CommandLineOptions more = {}, int status = kExitOk) {
    more.insert(more.end(), {{"disk_path", options_.path}, {"json", "-"}});
    EXPECT_EQ(run_command(command, more), status) << error_.str();
    const auto list = nlohmann::json::parse(out_.str(), nullptr, false);
    EXPECT_TRUE(list.is_array() && !list.empty()) << out_.str();
    return list.is_array() && !list.empty() ? list[0] : nlohmann::json();
  }

  DiskFolderOptions options_;
};

}  // namespace tiercel
