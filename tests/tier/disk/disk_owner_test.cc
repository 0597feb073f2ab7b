// SPDX-License-Identifier: Apache-2.0
//
// One owner at a time: in one process, in two, and after violent deaths.

#include "tier/disk/disk_owner.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include <gtest/gtest.h>
#include <signal.h>

#include "base/quantity.h"
#include "support/child_process.h"
#include "tier/disk/disk_folder_fixture.h"

namespace tiercel {
namespace {

using testing::says;

// Long enough for any machine; a test that waits for it in full has failed.
constexpr Duration kLongWait = std::chrono::seconds(30);

class DiskOwnerTest : public testing::DiskFolderTest {
 protected:
  std::string busy_beginning() const {
    return "busy: disk tier " + quoted_path(options.path + "/main") + " is in use by process ";
  }
};

TEST_F(DiskOwnerTest, ASecondOwnerInTheSameProcessIsRefused) {
  const auto first = open();
  ASSERT_TRUE(first);
  const std::string text = refusal();
  EXPECT_TRUE(says(text, busy_beginning() + std::to_string(::getpid()) + " ("));
  EXPECT_TRUE(says(text, "tiercel_tier_disk_tests) since 2"));
  EXPECT_TRUE(says(text, ", which is this one; end that, or choose another disk_instance"));
}

TEST_F(DiskOwnerTest, ASecondOwnerDoesNotDisturbTheFirst) {
  const auto first = open();
  ASSERT_TRUE(first);
  write_block(*first, 0, "a", 1);
  const auto before = snapshot();
  EXPECT_TRUE(says(refusal(), "busy: "));
  options.bytes *= 2;
  options.reset = true;
  options.payload_bytes = {{4096, 1}};
  EXPECT_TRUE(says(refusal(), "busy: "));
  EXPECT_EQ(snapshot(), before);
  EXPECT_EQ(keys_of(contents(*first)), keys({"a"}));
  EXPECT_TRUE(says(refusal(), std::to_string(::getpid()))) << "the owner is still named";
}

TEST_F(DiskOwnerTest, InstancesBesideEachOtherHaveOwnersOfTheirOwn) {
  const auto first = open();
  options.instance = "other";
  const auto second = open();
  EXPECT_TRUE(first && second);
}

TEST_F(DiskOwnerTest, AfterTheFirstHasClosedItTheNextMayHaveIt) {
  ASSERT_TRUE(open());
  EXPECT_TRUE(open());
}

// F38: what a killed process leaves behind does not keep the next one out.
TEST_F(DiskOwnerTest, AProcessThatHasItIsNamedAndAfterItsKillTheNextMayHaveIt) {
  testing::WaitingChild holder([&](const std::function<void()>& wait) {
    const auto folder = open();
    if (!folder) ::_exit(1);
    write_block(*folder, 0, "a", 1);
    wait();
  });
  const std::string text = refusal();
  EXPECT_TRUE(says(text, busy_beginning() + std::to_string(holder.pid()) + " ("));
  EXPECT_FALSE(says(text, "which")) << text;
  holder.kill_now();
  for (int start = 0; start < 2; ++start) {
    const auto folder = open();
    ASSERT_TRUE(folder);
    EXPECT_EQ(keys_of(contents(*folder)), keys({"a"}));
    EXPECT_TRUE(says(testing::read_file(file("owner")), "pid " + std::to_string(::getpid())));
  }
  EXPECT_FALSE(std::filesystem::exists(file("owner")));
  EXPECT_FALSE(std::filesystem::exists(file("owner.new")));
}

// F38: a process that has inherited the files may still write to them.
TEST_F(DiskOwnerTest, WhatADeadOwnerHasStartedHoldsTheNextOneOff) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  testing::WaitingChild owner([&](const std::function<void()>& wait) {
    const auto folder = open();
    if (!folder) ::_exit(1);
    const Result<DiskRankFiles> files = folder->files(0);
    const pid_t worker = ::fork();
    if (worker == 0) {
      ::alarm(testing::kChildSecondsMax);
      while (true) ::pause();
    }
    if (::write(ends[1], &worker, sizeof(worker)) != sizeof(worker)) ::_exit(2);
    wait();
  });
  pid_t worker = -1;
  ASSERT_EQ(::read(ends[0], &worker, sizeof(worker)), static_cast<ssize_t>(sizeof(worker)));
  ::close(ends[0]);
  ::close(ends[1]);
  const std::string owner_text = std::to_string(owner.pid());
  owner.kill_now();
  const std::string text = refusal();
  EXPECT_TRUE(says(text, busy_beginning() + owner_text + " ("));
  EXPECT_TRUE(says(text, ", which no longer lives; what it has started"));
  ASSERT_EQ(::kill(worker, SIGKILL), 0);
  options.lock_wait = kLongWait;
  EXPECT_TRUE(open());
}

TEST_F(DiskOwnerTest, DescriptorsThatWerePassedOnKeepTheLock) {
  auto folder = open();
  ASSERT_TRUE(folder);
  {
    const Result<DiskRankFiles> files = folder->files(0);
    ASSERT_TRUE(files);
    folder.reset();
    EXPECT_TRUE(says(refusal(), "busy: "));
  }
  EXPECT_TRUE(open());
}

TEST_F(DiskOwnerTest, AForkedChildThatDropsTheFolderLeavesTheOwnerNamed) {
  auto folder = open();
  ASSERT_TRUE(folder);
  EXPECT_EQ(testing::run_in_child([&] {
              folder.reset();
              return std::string();
            }),
            "");
  EXPECT_TRUE(says(refusal(), busy_beginning() + std::to_string(::getpid())));
}

TEST_F(DiskOwnerTest, WhatStandsInTheOwnerFileCannotForgeAMessage) {
  const auto first = open();
  ASSERT_TRUE(first);
  std::ofstream(file("owner")) << "pid 7\nprogram a\x1b[31m\nsince";
  EXPECT_TRUE(says(refusal(), "process 7 (a\\x1b[31m) since unknown on host unknown; end that"));
  std::ofstream(file("owner")) << "";
  EXPECT_TRUE(says(refusal(), "in use by an unknown process; end that"));
}

TEST_F(DiskOwnerTest, AnOwnerThatCannotNameItselfHasItAllTheSame) {
  std::filesystem::create_directories(file("owner.new"));
  const auto folder = open();
  ASSERT_TRUE(folder);
  EXPECT_TRUE(says(joined(folder->notes()), "others will not be told who has"));
  EXPECT_TRUE(says(refusal(), "busy: "));
}

TEST_F(DiskOwnerTest, WhetherSomebodyHasALockCanBeSeenWithoutDisturbing) {
  auto folder = open();
  ASSERT_TRUE(folder);
  const auto rank = open_disk_folder(file("rank0"), DiskOpen::kRead);
  ASSERT_TRUE(rank);
  const auto data = open_disk_file(*rank, "data", DiskOpen::kRead);
  ASSERT_TRUE(data);
  EXPECT_EQ(is_disk_file_locked(*data).value(), true);
  folder.reset();
  EXPECT_EQ(is_disk_file_locked(*data).value(), false);
  EXPECT_TRUE(open());
}

}  // namespace
}  // namespace tiercel
