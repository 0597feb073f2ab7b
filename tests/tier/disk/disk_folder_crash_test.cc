// SPDX-License-Identifier: Apache-2.0
//
// Kills and left-overs: a folder opens after any of them, keeps to its bound, and finds what was
// whole.

#include <array>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/random.h"
#include "tier/disk/disk_folder_fixture.h"

namespace tiercel {
namespace {

namespace fs = std::filesystem;

using testing::says;

class DiskFolderCrashTest : public testing::DiskFolderTest {
 protected:
  DiskFolderCrashTest() { options.payload_bytes = {{4096, 4096}}; }

  // Starts `body` in a child and kills it at a moment that is as good as any other.
  static void kill_during(Random& random, const std::function<void()>& body) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::alarm(60);
      body();
      ::_exit(0);
    }
    for (volatile uint64_t left = random.below(uint64_t{1} << random.between(10, 23)); left > 0;) {
      left = left - 1;
    }
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
  }

  void expect_usable(const std::string& state) {
    const auto folder = open();
    ASSERT_TRUE(folder) << state;
    EXPECT_LE(bytes_of_files(), options.bytes) << state;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const std::string name = "rank" + std::to_string(rank);
      EXPECT_EQ(fs::file_size(file(name + "/data")), disk_data_bytes(folder->geometry(), rank));
      EXPECT_EQ(fs::file_size(file(name + "/metadata")), disk_metadata_bytes(folder->geometry()));
    }
    write_block(*folder, 1, "after", 1000);
    EXPECT_EQ(keys_of(contents(*folder)).back(), keys({"after"}).back()) << state;
  }
};

// Every state that making a folder passes through, in its order.
TEST_F(DiskFolderCrashTest, AFolderThatWasMadeInPartIsMadeToTheEnd) {
  ASSERT_TRUE(open());
  const std::string zeros(2 * kDiskHeaderBytes, '\0');
  const auto without_header = [&](const char* name, size_t pages) {
    overwrite(file(name), 0, zeros.substr(0, pages * kDiskHeaderBytes));
  };
  const std::vector<std::pair<std::string, std::function<void()>>> steps_back = {
      {"header B of rank 0", [&] { overwrite(file("rank0/metadata"), 4096, zeros.substr(4096)); }},
      {"header A of rank 0", [&] { without_header("rank0/metadata", 1); }},
      {"data header of rank 0", [&] { without_header("rank0/data", 1); }},
      {"headers of rank 1", [&] { without_header("rank1/metadata", 2); }},
      {"data header of rank 1", [&] { without_header("rank1/data", 1); }},
      {"length of rank 1's metadata", [&] { fs::resize_file(file("rank1/metadata"), 0); }},
      {"length of rank 1's data", [&] { fs::resize_file(file("rank1/data"), 0); }},
      {"length of rank 0's metadata", [&] { fs::resize_file(file("rank0/metadata"), 5000); }},
      {"length of rank 0's data", [&] { fs::resize_file(file("rank0/data"), 0); }},
      {"rank 1's metadata", [&] { fs::remove(file("rank1/metadata")); }},
      {"rank 1", [&] { fs::remove_all(file("rank1")); }},
      {"rank 0's metadata", [&] { fs::remove(file("rank0/metadata")); }},
      {"rank 0", [&] { fs::remove_all(file("rank0")); }},
      {"the instance", [&] { fs::remove_all(file("")); }},
  };
  for (size_t count = 1; count <= steps_back.size(); ++count) {
    for (size_t step = 0; step < count; ++step) steps_back[step].second();
    expect_usable("without " + steps_back[count - 1].first);
  }
}

TEST_F(DiskFolderCrashTest, AKillWhileAFolderIsMadeLeavesOneThatOpens) {
  Random random(51);
  for (int round = 0; round < 20; ++round) {
    fs::remove_all(options.path);
    kill_during(random, [&] { open(); });
    expect_usable("round " + std::to_string(round));
  }
}

TEST_F(DiskFolderCrashTest, AKillDuringAResetLeavesTheOldOneOrANewOne) {
  Random random(52);
  for (int round = 0; round < 8; ++round) {
    fs::remove_all(options.path);
    options.payload_bytes = {{100, 100, 100, 100}};
    options.reset = false;
    ASSERT_TRUE(open());
    options.payload_bytes = {{4096, 4096}};
    options.reset = true;
    kill_during(random, [&] { open(); });
    options.reset = false;
    const Result<std::unique_ptr<DiskFolder>> found = DiskFolder::open(options);
    if (!found) {
      EXPECT_TRUE(says(found.error().to_string(), "was made for 4 ranks, not 2"));
      options.reset = true;
    } else {
      EXPECT_FALSE(fs::exists(file("rank2")) || fs::exists(file("rank3"))) << "nothing is left";
    }
  }
}

// F36: whatever was under way, the files keep to the bound, and what was whole is found.
TEST_F(DiskFolderCrashTest, AKillWhileItGrowsOrShrinksLosesNothingThatStays) {
  Random random(53);
  {
    const auto folder = open();
    ASSERT_TRUE(folder);
    for (uint32_t slot = 0; slot < 5; ++slot) {
      write_block(*folder, slot, "block " + std::to_string(slot), slot + 1);
    }
  }
  for (int round = 0; round < 40; ++round) {
    options.bytes = random.between(200000, 20000000);
    kill_during(random, [&] { open(); });
    options.bytes = random.between(200000, 20000000);
    const auto folder = open();
    ASSERT_TRUE(folder);
    EXPECT_LE(bytes_of_files(), options.bytes);
    const DiskContents found = contents(*folder);
    EXPECT_EQ(keys_of(found), keys({"block 0", "block 1", "block 2", "block 3", "block 4"}));
    EXPECT_EQ(found.torn + found.disagreeing + found.misplaced, 0u);
  }
}

// F36: nothing in the instance's folder is outside the bound after a reopen.
TEST_F(DiskFolderCrashTest, LeftOversBehindTheEndOfAFileAreCutOff) {
  ASSERT_TRUE(open());
  fs::resize_file(file("rank0/data"), 50 << 20);
  fs::resize_file(file("rank1/metadata"), 50 << 20);
  expect_usable("too long");
}

TEST_F(DiskFolderCrashTest, AFileThatWasCutShortIsLengthenedAgain) {
  {
    const auto folder = open();
    ASSERT_TRUE(folder);
    write_block(*folder, 0, "stays", 1);
    write_block(*folder, folder->geometry().slot_count_max() - 1, "cut off", 2);
  }
  fs::resize_file(file("rank0/data"), 8192);
  fs::resize_file(file("rank1/metadata"), 2 * 4096 + 160 + 80);
  const auto folder = open();
  ASSERT_TRUE(folder);
  const DiskContents found = contents(*folder);
  EXPECT_EQ(keys_of(found), keys({"stays"}));
  EXPECT_EQ(found.disagreeing, 1u);
  EXPECT_EQ(fs::file_size(file("rank0/data")), disk_data_bytes(folder->geometry(), 0));
}

// F37: a restart counts what is there: as many blocks as the bound allows, and no byte more.
TEST_F(DiskFolderCrashTest, AFullFolderIsFoundFullAndInOrderOfWriting) {
  std::vector<std::string> words;
  {
    const auto folder = open();
    ASSERT_TRUE(folder);
    const uint32_t slots = folder->geometry().slot_count_max();
    for (uint32_t slot = 0; slot < slots; ++slot) {
      words.push_back("block " + std::to_string(slot));
      // The last slot is the oldest.
      write_block(*folder, slots - 1 - slot, words.back(), slot + 1);
    }
  }
  const uint64_t bytes = bytes_of_files();
  EXPECT_LE(bytes, options.bytes);
  const auto folder = open();
  ASSERT_TRUE(folder);
  const DiskContents found = contents(*folder);
  EXPECT_EQ(found.blocks.size(), folder->geometry().slot_count_max());
  EXPECT_EQ(keys_of(found), keys(words));
  EXPECT_EQ(bytes_of_files(), bytes);
}

}  // namespace
}  // namespace tiercel
