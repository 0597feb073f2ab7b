// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gtest/gtest.h>

#include "cli/disk_tool_fixture.h"
#include "tier/disk/disk_format.h"

namespace tiercel {
namespace {

class InspectCommand : public DiskToolTest {
 protected:
  nlohmann::json inspect() { return figures_of(run_inspect_command); }
  bool says(const std::string& text) const { return out_.str().find(text) != std::string::npos; }
};

TEST_F(InspectCommand, CountsBlocksBytesNamespacesAndSlots) {
  {
    const auto folder = open();
    write_block(*folder, {.slot = 0, .key = "a", .sequence = 1, .written_unix_s = 1000});
    write_block(*folder,
                {.slot = 1, .key = "b", .parent = "a", .sequence = 2, .written_unix_s = 3000});
    write_block(*folder, {.slot = 3, .key = "c", .sequence = 3, .name_space = "other"});
    flip_bit(file(1, "metadata"), disk_record_offset(SlotId(3)) + 60);
    write_block(*folder, {.slot = 5, .key = "d", .sequence = 4, .name_space = "other"});
  }
  const auto json = inspect();
  EXPECT_EQ(json["format_version"], kDiskFormatVersion);
  EXPECT_EQ(json["rank_count"], 2);
  EXPECT_TRUE(json["holder"].is_null());
  EXPECT_TRUE(json["complete"]);
  EXPECT_TRUE(json["faults"].empty());
  const uint64_t slots = json["slots"]["total"];
  EXPECT_EQ(json["slots"]["blocks"], 3);
  EXPECT_EQ(json["slots"]["bad"], 1);
  EXPECT_EQ(json["slots"]["empty"], slots - 4);
  EXPECT_EQ(json["ranks"][0]["used"], 4);
  EXPECT_EQ(json["ranks"][1]["used"], 3);
  EXPECT_EQ(json["ranks"][1]["bad"], 1);
  EXPECT_EQ(json["groups"][0]["blocks"], 3);
  EXPECT_EQ(json["groups"][0]["bytes"], 3 * 6000);
  ASSERT_EQ(json["namespaces"].size(), 2u);
  const auto& most = json["namespaces"][0];
  EXPECT_EQ(most["namespace"], testing::digest_of<Namespace>("namespace").hex().substr(0, 16));
  EXPECT_EQ(most["blocks"], 2);
  EXPECT_EQ(most["bytes"], 2 * 6000);
  EXPECT_EQ(most["oldest_age_s"].get<int64_t>() - most["youngest_age_s"].get<int64_t>(), 2000);
  EXPECT_LE(json["allocated_bytes"], json["file_bytes"]);
  EXPECT_LE(json["file_bytes"], options_.bytes);
  EXPECT_EQ(run_command(run_inspect_command, {{"disk_path", options_.path}}), kExitOk);
  EXPECT_TRUE(says("by nobody")) << out_.str();
  EXPECT_TRUE(says("3 blocks")) << out_.str();
}

TEST_F(InspectCommand, CountsWhatNoRequestReaches) {
  {
    const auto folder = open();
    write_block(*folder, {.slot = 0, .key = "head", .sequence = 1});
    write_block(*folder, {.slot = 1, .key = "reached", .parent = "head", .sequence = 2});
    write_block(*folder, {.slot = 2, .key = "orphan", .parent = "gone", .sequence = 3});
    write_block(*folder, {.slot = 3, .key = "its child", .parent = "orphan", .sequence = 4});
    write_block(*folder, {.slot = 4, .key = "ring", .parent = "ring", .sequence = 5});
  }
  EXPECT_EQ(inspect()["unreachable_blocks"], 3);
}

TEST_F(InspectCommand, ShowsHowMuchOfTheExtentsInUseIsFree) {
  options_.payload_bytes = {{9000}, {100}};
  options_.bytes = 16 << 20;
  uint32_t small_slots = 0;
  uint32_t extents = 0;
  {
    const auto folder = open();
    const SlotGeometry& geometry = folder->geometry();
    extents = geometry.extent_count();
    small_slots = geometry.slots_in_extent(1, GroupId(1));
    // One extent full, one with a single block.
    for (uint32_t i = 0; i < geometry.slots_in_extent(0, GroupId(0)); ++i) {
      write_block(*folder, {.slot = geometry.slot_at(0, i).value(),
                            .key = "large" + std::to_string(i),
                            .sequence = i + 1});
    }
    write_block(*folder, {.slot = geometry.slot_at(1, 0).value(), .key = "small", .group = 1});
  }
  const auto json = inspect();
  EXPECT_EQ(json["extents"]["total"], extents);
  EXPECT_EQ(json["extents"]["in_use"], 2);
  EXPECT_EQ(json["extents"]["partly_full"], 1);
  EXPECT_EQ(json["extents"]["free_slots"], small_slots - 1);
  EXPECT_EQ(json["groups"][1]["blocks"], 1);
  EXPECT_EQ(json["groups"][1]["bytes"], 100);
}

TEST_F(InspectCommand, LooksAtATierInUseAndNamesTheHolder) {
  const auto folder = open();
  write_block(*folder, {.slot = 0, .key = "a"});
  const auto before = snapshot();
  const auto json = inspect();
  EXPECT_EQ(json["slots"]["blocks"], 1);
  ASSERT_TRUE(json["holder"].is_string());
  const std::string process = "process " + std::to_string(::getpid());
  EXPECT_NE(json["holder"].get<std::string>().find(process), std::string::npos) << json["holder"];
  EXPECT_EQ(run_command(run_inspect_command, {{"disk_path", options_.path}}), kExitOk);
  EXPECT_TRUE(says(process)) << out_.str();
  EXPECT_TRUE(says("may write while this is read")) << out_.str();
  EXPECT_EQ(snapshot(), before);
}

TEST_F(InspectCommand, ShowsAllInstancesOrTheOneThatIsNamed) {
  for (const char* name : {"b", "a"}) {
    options_.instance = name;
    ASSERT_TRUE(open());
  }
  EXPECT_EQ(run_command(run_inspect_command, {{"disk_path", options_.path}, {"json", "-"}}),
            kExitOk);
  const auto list = nlohmann::json::parse(out_.str());
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0]["instance"], "a");
  EXPECT_EQ(list[1]["instance"], "b");
  EXPECT_EQ(figures_of(run_inspect_command, {{"instance", "b"}})["instance"], "b");
}

TEST_F(InspectCommand, RefusesWhatIsNoDiskTier) {
  EXPECT_EQ(run_command(run_inspect_command, {}), kExitRefused);
  EXPECT_NE(error_.str().find("disk_path"), std::string::npos) << error_.str();
  EXPECT_EQ(run_command(run_inspect_command, {{"disk_path", options_.path}}), kExitRefused);
  EXPECT_NE(error_.str().find(options_.path), std::string::npos) << error_.str();
  std::filesystem::create_directory(options_.path);
  EXPECT_EQ(run_command(run_inspect_command, {{"disk_path", options_.path}}), kExitRefused);
  EXPECT_NE(error_.str().find("no disk tier"), std::string::npos) << error_.str();
  ASSERT_TRUE(open());
  EXPECT_EQ(run_command(run_inspect_command, {{"disk_path", options_.path}, {"instance", "other"}}),
            kExitRefused);
  EXPECT_NE(error_.str().find("holds \"main\""), std::string::npos) << error_.str();
}

TEST_F(InspectCommand, ShowsWhatItCanOfADamagedTier) {
  ASSERT_TRUE(open());
  overwrite(file(0, "metadata"), 0, std::string(8192, 'x'));
  std::filesystem::remove(file(1, "data"));
  const auto json = inspect();
  EXPECT_EQ(json["faults"].size(), 2u) << json["faults"];
  EXPECT_EQ(json["slots"]["blocks"], 0);
  overwrite(file(1, "metadata"), 0, std::string(8192, 'x'));
  EXPECT_EQ(inspect()["faults"].size(), 2u);
}

TEST_F(InspectCommand, StoppedItExits130WithWhatItHas) {
  ASSERT_TRUE(open());
  stop_ = true;
  EXPECT_EQ(run_command(run_inspect_command, {{"disk_path", options_.path}, {"json", "-"}}),
            kExitInterrupted);
  EXPECT_TRUE(nlohmann::json::parse(out_.str()).is_array());
}

}  // namespace
}  // namespace tiercel
