// SPDX-License-Identifier: Apache-2.0
//
// A small store of three blocks whose files are damaged in every way, and what is found in it then.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "crash/disk_rig.h"
#include "crash/folder_files.h"
#include "support/temp_folder.h"
#include "tier/disk/disk_format.h"
#include "tier/slot_geometry.h"

namespace tiercel::testing {

inline constexpr uint32_t kStorePrompts = 3;  // of one block each, so that each stands for itself
inline constexpr uint64_t kStoreBlockBytes = 4096;

inline uint64_t store_slot_bytes() { return slot_stride_bytes(kStoreBlockBytes); }

// Just enough for three slots.
inline uint64_t store_bytes(uint32_t ranks) {
  return ranks * (3 * kDiskHeaderBytes + kStorePrompts * (store_slot_bytes() + kDiskRecordBytes));
}

// What a look into a store brought.
struct Found {
  std::optional<Error> refusal;  // of the opening
  std::array<bool, kStorePrompts> right{};
  uint32_t wrong = 0;    // blocks
  uint64_t corrupt = 0;  // gets, as the statistics say
  uint64_t recovered = 0;
  std::string notes;

  uint32_t right_count() const {
    return static_cast<uint32_t>(std::count(right.begin(), right.end(), true));
  }
  std::string text() const {
    std::string text = refusal ? refusal->to_string() : "found";
    for (const bool is_right : right) text += is_right ? " yes" : " no";
    return text + ", wrong " + std::to_string(wrong) + ", corrupt " + std::to_string(corrupt) +
           "\n" + notes;
  }
};

class DamageTest : public ::testing::Test {
 protected:
  static RigOptions store_options(const std::string& path, uint32_t ranks = 1) {
    RigOptions options;
    options.ranks = ranks;
    options.block_bytes = kStoreBlockBytes;
    options.host_blocks = 8;
    options.disk.path = path;
    options.disk.bytes = store_bytes(ranks);
    options.disk.io = DiskIoWay::kThreads;  // opens faster
    options.disk.direct = false;
    return options;
  }

  // Writes the prompts first, first + 1, … and closes.
  static void fill(const RigOptions& options, uint64_t first = 1) {
    const auto rig = DiskRig::open(options);
    ASSERT_TRUE(rig) << rig.error().to_string();
    for (uint64_t prompt = first; prompt < first + kStorePrompts; ++prompt) {
      ASSERT_TRUE((*rig)->save(prompt, 1));
      ASSERT_TRUE((*rig)->settle());
      ASSERT_EQ((*rig)->on_disk(prompt, 1), 1u);
    }
    ASSERT_TRUE((*rig)->close());
  }

  static Found look(const RigOptions& options, uint64_t first = 1) {
    Found found;
    const auto rig = DiskRig::open(options);
    if (!rig) {
      found.refusal = rig.error();
      return found;
    }
    found.recovered = (*rig)->cache().stats().disk_recovered_blocks;
    for (uint32_t i = 0; i < kStorePrompts; ++i) {
      const Result<RigRead> read = (*rig)->read(first + i, 1);
      EXPECT_TRUE(read) << read.error().to_string();
      if (!read) continue;
      found.wrong += read->wrong;
      found.right[i] = read->loaded == 1 && read->wrong == 0;
    }
    found.corrupt = (*rig)->cache().stats().disk_get_corrupt;
    found.notes = (*rig)->notes();
    EXPECT_TRUE((*rig)->close());
    return found;
  }

  // Every n-th case, from a random one on; all of them for scripts/crash-disk.
  static uint64_t step(uint64_t n) { return std::getenv("TIERCEL_CRASH_ALL") == nullptr ? n : 1; }
  static uint64_t phase(uint64_t step) { return std::random_device()() % step; }

  std::string instance(const std::string& store) const { return temp_.path(store) + "/main"; }

  TempFolder temp_{memory_folder()};
};

}  // namespace tiercel::testing
