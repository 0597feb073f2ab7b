// SPDX-License-Identifier: Apache-2.0

#include "tier/disk/disk_inspect.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tier/disk/disk_folder_fixture.h"

namespace tiercel {
namespace {

namespace fs = std::filesystem;

using testing::says;

class DiskInspectTest : public testing::DiskFolderTest {
 protected:
  DiskInstanceLook look() {
    Result<DiskInstanceLook> look = look_at_disk_instance(options.path, options.instance);
    EXPECT_TRUE(look) << look.error().to_string();
    return look ? *std::move(look) : DiskInstanceLook{};
  }
};

TEST_F(DiskInspectTest, ListsTheInstancesOfAFolder) {
  for (const char* name : {"b", "a", "c.1"}) {
    options.instance = name;
    ASSERT_TRUE(open());
  }
  fs::create_directory(options.path + "/something else");
  EXPECT_EQ(*list_disk_instances(options.path), (std::vector<std::string>{"a", "b", "c.1"}));
  EXPECT_EQ(list_disk_instances(temp_.path("missing")).code(), Code::kNotFound);
  EXPECT_EQ(list_disk_instances(temp_.write("file", "")).code(), Code::kInvalid);
}

TEST_F(DiskInspectTest, ShowsHeadersSizesAndTheHolderOfAFolderInUse) {
  options.payload_bytes = {{4096, 100}};
  auto folder = open();
  ASSERT_TRUE(folder);
  const auto before = snapshot();
  DiskInstanceLook found = look();
  ASSERT_EQ(found.ranks.size(), 2u);
  ASSERT_TRUE(found.holder);
  EXPECT_TRUE(says(*found.holder, "process " + std::to_string(::getpid()) + " ("));
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const DiskRankLook& seen = found.ranks[rank];
    EXPECT_EQ(seen.rank, rank);
    EXPECT_EQ(*seen.metadata.header, folder->files(rank)->header);
    EXPECT_EQ(seen.data.header->folder_id, folder->id());
    EXPECT_EQ(seen.slot_count(), folder->geometry().slot_count_max());
    EXPECT_EQ(seen.data.bytes, disk_data_bytes(folder->geometry(), rank));
    EXPECT_EQ(seen.metadata.bytes, disk_metadata_bytes(folder->geometry()));
    EXPECT_LT(seen.data.allocated_bytes, seen.data.bytes);
    EXPECT_GE(seen.metadata.allocated_bytes, seen.metadata.bytes);
  }
  folder.reset();
  EXPECT_FALSE(look().holder);
  fs::remove(file("rank1/metadata"));
  found = look();
  ASSERT_EQ(found.ranks.size(), 2u);
  EXPECT_EQ(found.ranks[1].metadata.header.code(), Code::kNotFound);
  EXPECT_EQ(found.ranks[1].slot_count(), 0u);
  EXPECT_EQ(found.ranks[1].for_each_record([](SlotId, const Result<DiskRecord>&) {}).code(),
            Code::kNotFound);
  EXPECT_FALSE(fs::exists(file("rank1/metadata"))) << "looking makes nothing";
  EXPECT_EQ(look_at_disk_instance(options.path, "other").code(), Code::kNotFound);
}

TEST_F(DiskInspectTest, ShowsEachSlot) {
  const auto folder = open();
  ASSERT_TRUE(folder);
  write_block(*folder, 1, "a", 1);
  write_block(*folder, 2, "b", 2);
  write_bytes(*folder, 0, SlotId(2), std::array<std::byte, 2>{});
  const DiskInstanceLook found = look();
  uint32_t slots = 0;
  EXPECT_TRUE(found.ranks[0].for_each_record([&](SlotId slot, const Result<DiskRecord>& record) {
    EXPECT_EQ(slot, SlotId(slots++));
    if (slot.value() == 1) {
      EXPECT_EQ(record->key, testing::digest_of<BlockKey>("a"));
    } else {
      EXPECT_EQ(record.code(), slot.value() == 2 ? Code::kCorrupt : Code::kNotFound);
    }
  }));
  EXPECT_EQ(slots, folder->geometry().slot_count_max());
}

TEST_F(DiskInspectTest, ADamagedHeaderIsShownNotAnError) {
  ASSERT_TRUE(open());
  overwrite(file("rank0/metadata"), 0, std::string(8192, 'x'));
  fs::resize_file(file("rank0/data"), 10);
  const DiskInstanceLook found = look();
  EXPECT_EQ(found.ranks[0].metadata.header.code(), Code::kCorrupt);
  EXPECT_EQ(found.ranks[0].data.header.code(), Code::kCorrupt);
  EXPECT_EQ(found.ranks[0].data.bytes, 10u);
}

}  // namespace
}  // namespace tiercel
