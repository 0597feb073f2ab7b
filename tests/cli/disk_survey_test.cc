// SPDX-License-Identifier: Apache-2.0
#include "cli/disk_survey.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "cli/disk_tool_fixture.h"

namespace tiercel {
namespace {

class DiskSurveyTest : public DiskToolTest {
 protected:
  DiskSurvey survey() {
    const auto look = look_at_disk_instance(options_.path, options_.instance);
    EXPECT_TRUE(look) << look.error().to_string();
    const auto ranks = usable_ranks(
        *look, [](uint32_t rank, const std::string& what) { ADD_FAILURE() << rank << what; });
    const auto survey = survey_disk(ranks, {});
    EXPECT_TRUE(survey) << survey.error().to_string();
    return *survey;
  }
};

// The tool and a restart count alike, whatever stands in the records.
TEST_F(DiskSurveyTest, CountsAsARestartDoes) {
  options_.payload_bytes = {{9000, 5000}, {100, 3000}};
  options_.bytes = 4 << 20;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    std::filesystem::remove_all(options_.path);
    auto folder = open();
    const uint32_t slots = folder->geometry().slot_count_max();
    for (uint64_t sequence = 1; sequence <= 60; ++sequence) {
      const Block block{.slot = static_cast<uint32_t>(random.below(std::min(slots, 40u))),
                        .key = std::to_string(random.below(30)),
                        .parent = random.chance(0.5) ? std::to_string(random.below(30)) : "",
                        .sequence = sequence,
                        .group = static_cast<uint8_t>(random.below(2))};
      for (uint32_t rank = 0; rank < 2; ++rank) {
        if (random.chance(0.9)) write_record(*folder, rank, block);
      }
      if (random.chance(0.05)) {
        flip_bit(file(static_cast<uint32_t>(random.below(2)), "metadata"),
                 disk_record_offset(SlotId(block.slot)) + random.below(kDiskRecordBytes));
      }
    }
    const DiskSurvey seen = survey();
    const auto contents = folder->read_contents(Namespace{}, false);
    ASSERT_TRUE(contents);
    EXPECT_EQ(seen.count(SlotState::kBlock), contents->blocks.size());
    EXPECT_EQ(seen.count(SlotState::kBad), contents->torn);
    EXPECT_EQ(seen.count(SlotState::kCleared), contents->cleared);
    EXPECT_EQ(seen.count(SlotState::kMisplaced), contents->misplaced);
    EXPECT_EQ(seen.count(SlotState::kDisagreeing), contents->disagreeing);
    EXPECT_EQ(seen.count(SlotState::kDuplicate), contents->duplicates);
    for (const DiskBlock& block : contents->blocks) {
      EXPECT_EQ(seen.slots[block.slot.value()].state, SlotState::kBlock);
    }
  }
}

TEST_F(DiskSurveyTest, ReportsHowFarItIsAndStopsWhenAsked) {
  ASSERT_TRUE(open());
  const auto look = look_at_disk_instance(options_.path, options_.instance);
  const auto ranks = usable_ranks(*look, [](uint32_t, const std::string&) {});
  DiskSurveyContext context;
  uint64_t done_last = 0;
  uint64_t all_last = 0;
  context.progress = [&](uint64_t done, uint64_t all) { done_last = done, all_last = all; };
  EXPECT_TRUE(survey_disk(ranks, context)->complete);
  EXPECT_EQ(done_last, all_last);
  EXPECT_EQ(all_last, 2 * ranks[0]->slot_count());
  context.stop = &stop_;
  stop_ = true;
  EXPECT_FALSE(survey_disk(ranks, context)->complete);
}

TEST_F(DiskSurveyTest, RanksOfAnotherFolderAreNotReadWithTheRest) {
  ASSERT_TRUE(open());
  const std::string other = file(1, "metadata");
  const std::string kept = options_.path;
  options_.path = folder_.path("other");
  ASSERT_TRUE(open());
  std::filesystem::copy_file(file(1, "metadata"), other,
                             std::filesystem::copy_options::overwrite_existing);
  options_.path = kept;
  const auto look = look_at_disk_instance(options_.path, options_.instance);
  std::vector<uint32_t> faulty;
  const auto ranks =
      usable_ranks(*look, [&](uint32_t rank, const std::string&) { faulty.push_back(rank); });
  ASSERT_EQ(ranks.size(), 1u);
  EXPECT_EQ(ranks[0]->rank, 0u);
  EXPECT_EQ(faulty, (std::vector<uint32_t>{1}));
}

}  // namespace
}  // namespace tiercel
