// SPDX-License-Identifier: Apache-2.0
//
// A disk folder in a temporary place, for tests that open it, write records into it and look at its
// files.
#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "support/temp_folder.h"
#include "tier/disk/disk_folder.h"
#include "tier/disk/disk_samples.h"

namespace tiercel::testing {

// Whether a message has the part, for EXPECT_TRUE.
inline ::testing::AssertionResult says(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "\"" << text << "\" does not say \"" << part << "\"";
}

inline const Namespace kNamespace = digest_of<Namespace>("namespace");

class DiskFolderTest : public ::testing::Test {
 protected:
  DiskFolderTest() {
    options.path = temp_.path("tier");
    options.bytes = 1 << 20;
    options.payload_bytes = {{4096}};
    options.lock_wait = Duration(0);
  }

  // Fails the test, and returns nothing, if the folder cannot be opened.
  std::unique_ptr<DiskFolder> open() {
    Result<std::unique_ptr<DiskFolder>> folder = DiskFolder::open(options);
    EXPECT_TRUE(folder) << folder.error().to_string();
    return folder ? *std::move(folder) : nullptr;
  }

  std::string refusal() {
    const Result<std::unique_ptr<DiskFolder>> folder = DiskFolder::open(options);
    return folder ? "no refusal" : folder.error().to_string();
  }

  static DiskContents contents(DiskFolder& folder, bool purge = false) {
    const Result<DiskContents> read = folder.read_contents(kNamespace, purge);
    EXPECT_TRUE(read) << read.error().to_string();
    return read ? *read : DiskContents{};
  }

  // A record as its rank's worker would write it.
  static DiskRecord record(const DiskFolder& folder, uint32_t rank, uint32_t slot,
                           std::string_view key, uint64_t sequence, uint8_t group = 0) {
    DiskRecord record = sample_disk_record();
    record.slot = SlotId(slot);
    record.group = GroupId(group);
    record.slice = Slice{static_cast<uint16_t>(rank), static_cast<uint16_t>(folder.rank_count())};
    record.name_space = kNamespace;
    record.key = digest_of<BlockKey>(key);
    record.sequence = sequence;
    return record;
  }

  static void write_record(const DiskFolder& folder, uint32_t rank, const DiskRecord& record) {
    std::array<std::byte, kDiskRecordBytes> bytes;
    encode_disk_record(record, folder.id(), bytes);
    write_bytes(folder, rank, record.slot, bytes);
  }

  static void write_bytes(const DiskFolder& folder, uint32_t rank, SlotId slot,
                          std::span<const std::byte> bytes) {
    const Result<DiskRankFiles> files = folder.files(rank);
    ASSERT_TRUE(files) << files.error().to_string();
    ASSERT_EQ(::pwrite(files->metadata.get(), bytes.data(), bytes.size(),
                       static_cast<off_t>(disk_record_offset(slot))),
              static_cast<ssize_t>(bytes.size()));
  }

  // The same block on every rank.
  static void write_block(const DiskFolder& folder, uint32_t slot, std::string_view key,
                          uint64_t sequence, uint8_t group = 0) {
    for (uint32_t rank = 0; rank < folder.rank_count(); ++rank) {
      write_record(folder, rank, record(folder, rank, slot, key, sequence, group));
    }
  }

  static std::vector<std::string> keys_of(const DiskContents& contents) {
    std::vector<std::string> keys;
    for (const DiskBlock& block : contents.blocks) keys.push_back(block.key.hex());
    return keys;
  }
  static std::vector<std::string> keys(const std::vector<std::string>& words) {
    std::vector<std::string> keys;
    for (const std::string& word : words) keys.push_back(digest_of<BlockKey>(word).hex());
    return keys;
  }

  std::string file(const std::string& name) const {
    return options.path + "/" + options.instance + "/" + name;
  }

  // Of every file below the instance's folder: its name and content.
  std::vector<std::pair<std::string, std::string>> snapshot() const {
    std::vector<std::pair<std::string, std::string>> files;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(options.path + "/" + options.instance)) {
      if (!entry.is_regular_file()) continue;
      files.emplace_back(entry.path().string(), read_file(entry.path().string()));
    }
    std::sort(files.begin(), files.end());
    return files;
  }

  uint64_t bytes_of_files() const {
    uint64_t sum = 0;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(options.path + "/" + options.instance)) {
      if (entry.is_regular_file() && entry.path().filename() != "owner") sum += entry.file_size();
    }
    return sum;
  }

  // Writes over a file in place.
  static void overwrite(const std::string& path, uint64_t offset, const std::string& bytes) {
    std::fstream stream(path, std::ios::in | std::ios::out | std::ios::binary);
    ASSERT_TRUE(stream) << path;
    stream.seekp(static_cast<std::streamoff>(offset));
    stream << bytes;
  }

  static std::string joined(const std::vector<std::string>& notes) {
    std::string text;
    for (const std::string& note : notes) text += note + "\n";
    return text;
  }

  TempFolder temp_;
  DiskFolderOptions options;
};

}  // namespace tiercel::testing
