// SPDX-License-Identifier: Apache-2.0
//
// Starts that cannot go well: they are refused with a message that names the option, its value and
// what to do, by LocalCache::open and by the tool, and what was there is left as it was.
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "crash/damage_fixture.h"
#include "support/child_process.h"
#include "support/paths.h"
#include "support/shell.h"

namespace tiercel::testing {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kTierBytes = uint64_t{1} << 20;
constexpr uint32_t kPrompts = 10;
constexpr uint32_t kBlocks = 4;  // of each
constexpr size_t kVersionOffset = 8;

::testing::AssertionResult says(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (text.find(part) != std::string::npos) continue;
    return ::testing::AssertionFailure() << "\"" << text << "\" does not say \"" << part << "\"";
  }
  return ::testing::AssertionSuccess();
}

class DiskOpenTest : public ::testing::Test {
 protected:
  DiskOpenTest() {
    options_.disk.path = temp_.path("tier");
    options_.disk.bytes = kTierBytes;
    options_.disk.io = DiskIoWay::kThreads;
  }

  void fill() {
    const auto rig = DiskRig::open(options_);
    ASSERT_TRUE(rig) << rig.error().to_string();
    for (uint64_t prompt = 0; prompt < kPrompts; ++prompt) {
      ASSERT_TRUE((*rig)->save(prompt, kBlocks));
      ASSERT_TRUE((*rig)->settle());
    }
    ASSERT_TRUE((*rig)->close());
  }

  // Blocks of all prompts that are found, all of them right.
  static uint32_t found(DiskRig& rig) {
    uint32_t blocks = 0;
    for (uint64_t prompt = 0; prompt < kPrompts; ++prompt) {
      const Result<RigRead> read = rig.read(prompt, kBlocks);
      EXPECT_TRUE(read) << read.error().to_string();
      if (!read) continue;
      EXPECT_EQ(read->wrong, 0u);
      blocks += read->loaded;
    }
    return blocks;
  }
  uint32_t found(std::string* notes = nullptr) {
    const auto rig = DiskRig::open(options_);
    EXPECT_TRUE(rig) << rig.error().to_string();
    if (!rig) return 0;
    if (notes != nullptr) *notes = (*rig)->notes();
    const uint32_t blocks = found(**rig);
    EXPECT_TRUE((*rig)->close());
    return blocks;
  }

  std::string refusal() {
    const auto rig = DiskRig::open(options_);
    return rig ? "no refusal" : rig.error().to_string();
  }

  // The tool on the same folder; `more` is put behind.
  Outcome tool(const std::string& more = {}) const {
    return run_shell(binary_path("tiercel") + " replay --limit 20 --host-blocks 1000 --trace " +
                     source_path("data/conversation_trace.jsonl") + " --block-bytes " +
                     std::to_string(options_.block_bytes) + "B --disk-path '" + options_.disk.path +
                     "' --disk-instance '" + options_.disk.instance + "' --disk-bytes " +
                     std::to_string(options_.disk.bytes) + "B " + more);
  }

  // Both refuse with the parts, and touch nothing.
  void expect_refused(const std::vector<std::string>& parts) {
    const FolderImage before = image_of(temp_.path(""));
    EXPECT_TRUE(says(refusal(), parts));
    const Outcome outcome = tool();
    EXPECT_EQ(outcome.status, 2) << outcome.text;
    EXPECT_TRUE(says(outcome.text, parts));
    EXPECT_TRUE(image_of(temp_.path("")) == before);
  }

  std::string instance() const { return options_.disk.path + "/" + options_.disk.instance; }

  TempFolder temp_;
  RigOptions options_;
};

TEST_F(DiskOpenTest, APathThatIsAFileIsRefused) {
  options_.disk.path = temp_.write("file", "mine");
  expect_refused({"disk_path", options_.disk.path, "is not a folder; name another"});
}

TEST_F(DiskOpenTest, APathWithoutAParentIsRefused) {
  options_.disk.path = temp_.path("missing/tier");
  expect_refused({"disk_path", options_.disk.path, "its parent is not there; make it"});
}

TEST_F(DiskOpenTest, LessThanOneSlotIsRefusedWithTheLeastThatIsAllowed) {
  options_.disk.bytes = 4096;
  expect_refused({"disk_bytes is 4KiB", "allowed: at least 20640B"});
}

TEST_F(DiskOpenTest, AnInstanceNameThatIsNoneIsRefused) {
  for (const char* name : {"a/b", "..", ".hidden", "with space"}) {
    options_.disk.instance = name;
    expect_refused({"disk_instance is \"" + std::string(name) + "\"", "allowed: 1 to 64 of "});
  }
  options_.disk.instance = "";
  expect_refused({"disk_instance is \"\"; allowed: "});
  EXPECT_FALSE(fs::exists(options_.disk.path));
}

TEST_F(DiskOpenTest, AnotherBlockSizeIsRefusedNothingIsLostAndResetStartsAnew) {
  fill();
  options_.block_bytes = 8192;
  expect_refused({"made for blocks of 4KiB", "not 8KiB", "nothing was overwritten",
                  "choose another disk_instance", "disk_reset"});
  options_.block_bytes = 4096;
  EXPECT_EQ(found(), kPrompts * kBlocks);

  options_.block_bytes = 8192;
  options_.disk.reset = true;
  std::string notes;
  EXPECT_EQ(found(&notes), 0u);
  EXPECT_TRUE(says(notes, {"started anew, empty, because of disk_reset"}));
  fill();
  options_.disk.reset = false;
  EXPECT_EQ(found(), kPrompts * kBlocks);
}

// Of a folder that fits, `reset` takes nothing away.
TEST_F(DiskOpenTest, ResetOfAFolderThatFitsKeepsIt) {
  fill();
  options_.disk.reset = true;
  EXPECT_EQ(found(), kPrompts * kBlocks);
}

TEST_F(DiskOpenTest, AnotherFormatVersionIsRefusedWithBothNumbersAndResetStartsAnew) {
  for (const auto& [version, relation] : {std::pair{'\3', "version 3 is newer than version 2"},
                                          std::pair{'\1', "version 1 is older than version 2"}}) {
    for (const char* name : {"rank0/metadata", "rank0/data"}) {
      SCOPED_TRACE(std::string(name) + ": " + relation);
      options_.disk.reset = true;
      fs::remove_all(options_.disk.path);
      fill();
      options_.disk.reset = false;
      FolderImage image = image_of(instance());
      image[name][kVersionOffset] = version;
      put_back(instance(), image);
      expect_refused({relation, "nothing was overwritten", "disk_reset", name});
      image[name][kVersionOffset] = '\2';
      put_back(instance(), image);
      EXPECT_EQ(found(), kPrompts * kBlocks);
      image[name][kVersionOffset] = version;
      put_back(instance(), image);
      const Outcome outcome = tool("--disk-reset");
      EXPECT_EQ(outcome.status, 0) << outcome.text;
      EXPECT_TRUE(says(outcome.text, {"started anew, empty, because of disk_reset"}));
    }
  }
}

TEST_F(DiskOpenTest, FilesThatAreNotOursAreRefusedAndLeftAlone) {
  fs::create_directories(instance() + "/rank0");
  for (const char* name : {"data", "metadata"}) {
    std::ofstream(instance() + "/rank0/" + name) << std::string(20000, 'x');
  }
  expect_refused({options_.disk.path, "nothing was overwritten", "disk_reset"});
}

TEST_F(DiskOpenTest, GrownItKeepsAllAndShrunkWhatFits) {
  options_.disk.bytes = kTierBytes;
  fill();
  options_.disk.bytes = 3 * kTierBytes;
  std::string notes;
  EXPECT_EQ(found(&notes), kPrompts * kBlocks);
  EXPECT_TRUE(says(notes, {"has grown from"}));

  options_.disk.bytes = kTierBytes / 4;
  const uint32_t left = found(&notes);
  EXPECT_GT(left, 0u);
  EXPECT_LT(left, kPrompts * kBlocks);
  EXPECT_TRUE(says(notes, {"has shrunk from", "blocks have gone"}));
  EXPECT_LE(space_below(options_.disk.path), options_.disk.bytes);

  options_.disk.bytes = kTierBytes;
  EXPECT_EQ(found(), left);
  fill();
  EXPECT_EQ(found(), kPrompts * kBlocks);
}

TEST_F(DiskOpenTest, TheToolGoesOnWithAnotherSize) {
  for (const uint64_t bytes : {4 * kTierBytes, kTierBytes, 8 * kTierBytes}) {
    options_.disk.bytes = bytes;
    const Outcome outcome = tool();
    EXPECT_EQ(outcome.status, 0) << outcome.text;
    EXPECT_LE(space_below(options_.disk.path), bytes);
  }
}

TEST_F(DiskOpenTest, AFolderThatMayNotBeWrittenIsRefusedForAnOrdinaryUser) {
  fs::create_directory(options_.disk.path);
  fs::permissions(temp_.path(""), fs::perms(0755));
  fs::permissions(options_.disk.path, fs::perms(0555));
  const std::vector<std::string> parts = {"disk_path", options_.disk.path, "Permission denied"};
  EXPECT_EQ(run_in_child([&]() -> std::string {
              // Root may write everywhere.
              if (::geteuid() == 0 && ::setuid(65534) != 0) return "cannot become nobody";
              if (!says(refusal(), parts)) return refusal();
              if (::access(binary_path("tiercel").c_str(), X_OK) != 0) return "";
              const Outcome outcome = tool();
              return outcome.status == 2 && says(outcome.text, parts) ? "" : outcome.text;
            }),
            "");
}

// F38: a live owner is not touched, another instance beside it starts, and after a violent death
// the next start works at once, and the one after it.
TEST_F(DiskOpenTest, F38ASecondOwnerIsRefusedAndWhatADeadOneLeftIsNotInTheWay) {
  fill();
  WaitingChild holder([this](const std::function<void()>& wait) {
    const auto rig = DiskRig::open(options_);
    if (rig) wait();
  });
  const std::string owner = "in use by process " + std::to_string(holder.pid());
  EXPECT_TRUE(says(refusal(), {owner, "choose another disk_instance or disk_path"}));
  options_.disk.instance = "second";
  fill();
  EXPECT_EQ(found(), kPrompts * kBlocks);
  options_.disk.instance = "main";
  holder.kill_now();
  EXPECT_TRUE(fs::exists(instance() + "/owner"));
  EXPECT_EQ(found(), kPrompts * kBlocks);
  EXPECT_EQ(found(), kPrompts * kBlocks);
  EXPECT_EQ(files_below(instance()), files_of_ranks(1));
}

TEST_F(DiskOpenTest, TheToolIsRefusedWhileAnotherProcessHasTheFolderWhichIsUndisturbed) {
  const auto rig = DiskRig::open(options_);
  ASSERT_TRUE(rig) << rig.error().to_string();
  for (uint64_t prompt = 0; prompt < kPrompts; ++prompt) {
    ASSERT_TRUE((*rig)->save(prompt, kBlocks));
    ASSERT_TRUE((*rig)->settle());
  }
  const Outcome outcome = tool();
  EXPECT_EQ(outcome.status, 2) << outcome.text;
  EXPECT_TRUE(says(outcome.text, {"in use by process " + std::to_string(::getpid()),
                                  "choose another disk_instance or disk_path"}));
  EXPECT_EQ(found(**rig), kPrompts * kBlocks);
  EXPECT_TRUE((*rig)->close());
}

}  // namespace
}  // namespace tiercel::testing
