// SPDX-License-Identifier: Apache-2.0
#include "store/mooncake/segment_share.h"

#include <array>
#include <chrono>
#include <filesystem>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memfd.h"
#include "base/unix_socket.h"
#include "store/mooncake/segment_peer.h"
#include "support/temp_folder.h"

namespace tiercel {
namespace {

using mooncake::SegmentPlace;

constexpr uint64_t kBytes = 1 << 20;
const SegmentPlace kPlace{0x7000'0000'0000, "name:1\nname:2"};
const SegmentPlace kOtherPlace{0x7100'0000'0000, "name:1\nname:3"};

class SegmentShareTest : public ::testing::Test {
 protected:
  std::unique_ptr<SegmentShare> share() {
    auto made = SegmentShare::create(path_, memfd_.get(), kBytes);
    EXPECT_TRUE(made) << made.error().to_string();
    return *std::move(made);
  }
  std::unique_ptr<SegmentPeer> peer() { return SegmentPeer::create(path_).value(); }

  static bool is_same_file(int one, int other) {
    struct stat first {};
    struct stat second {};
    EXPECT_EQ(::fstat(one, &first), 0);
    EXPECT_EQ(::fstat(other, &second), 0);
    return first.st_ino == second.st_ino;
  }

  const testing::TempFolder folder_;
  const std::string path_ = folder_.path("segment");
  const FileDescriptor memfd_ = make_memfd("segment", kBytes).value();
  const TimePoint now_ = TimePoint(std::chrono::hours(1));
  const TimePoint later_ = now_ + std::chrono::seconds(1);
};

TEST_F(SegmentShareTest, WhoAsksGetsTheMemoryAndItsPlaceAndEachChange) {
  const auto offered = share();
  const auto early = peer();
  EXPECT_FALSE(early->poll(now_));
  offered->poll({});
  EXPECT_FALSE(early->poll(now_)) << "it is not in the pool yet";
  EXPECT_NE(early->problem(), "");
  offered->poll(kPlace);
  EXPECT_TRUE(early->poll(now_));
  EXPECT_EQ(early->place(), kPlace);
  EXPECT_EQ(early->bytes(), kBytes);
  EXPECT_TRUE(is_same_file(early->memfd(), memfd_.get()));
  EXPECT_EQ(early->problem(), "");
  const auto late = peer();
  late->poll(now_);
  offered->poll(kPlace);
  EXPECT_TRUE(late->poll(now_));
  EXPECT_EQ(late->place(), kPlace);
  offered->poll({});
  EXPECT_TRUE(early->poll(now_));
  EXPECT_TRUE(late->poll(now_));
  EXPECT_EQ(early->place(), SegmentPlace());
  offered->poll(kOtherPlace);
  EXPECT_TRUE(late->poll(now_));
  EXPECT_EQ(late->place(), kOtherPlace);
}

TEST_F(SegmentShareTest, WhatIsNotOfferedAnyMoreIsLetGoAndAskedForAgain) {
  const auto asking = peer();
  EXPECT_FALSE(asking->poll(now_));
  EXPECT_NE(asking->problem().find(path_), std::string::npos) << asking->problem();
  auto offered = share();
  EXPECT_FALSE(asking->poll(now_)) << "not at once";
  EXPECT_EQ(asking->next_due(), later_);
  asking->poll(later_);
  offered->poll(kPlace);
  EXPECT_TRUE(asking->poll(later_));
  offered.reset();
  EXPECT_TRUE(asking->poll(later_));
  EXPECT_EQ(asking->place(), SegmentPlace());
  EXPECT_EQ(asking->memfd(), -1) << "the memory of a dead process must not stay";
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(SegmentShareTest, WhoHasGoneIsForgotten) {
  const auto offered = share();
  const auto count = [] {
    const std::filesystem::directory_iterator entries("/proc/self/fd");
    return std::distance(begin(entries), end(entries));
  };
  const auto before = count();
  for (int i = 0; i < 3; ++i) {
    const auto asking = peer();
    asking->poll(now_);
    offered->poll(kPlace);
    EXPECT_TRUE(asking->poll(now_));
  }
  offered->poll(kPlace);
  EXPECT_EQ(count(), before);
}

TEST_F(SegmentShareTest, ASecondOfferIsRefusedAndTheFirstOneStays) {
  const auto offered = share();
  const auto second = SegmentShare::create(path_, memfd_.get(), kBytes);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.code(), Code::kUnavailable);
  EXPECT_NE(second.error().message().find("another process offers"), std::string::npos);
  const auto asking = peer();
  asking->poll(now_);
  offered->poll(kPlace);
  EXPECT_TRUE(asking->poll(now_));
}

TEST_F(SegmentShareTest, ASocketThatADeadProcessHasLeftIsReplaced) {
  ASSERT_TRUE(listen_on(path_)) << "closed at once, and its file stays";
  ASSERT_TRUE(std::filesystem::exists(path_));
  const auto offered = share();
  const auto asking = peer();
  asking->poll(now_);
  offered->poll(kPlace);
  EXPECT_TRUE(asking->poll(now_));
}

TEST_F(SegmentShareTest, AFileThatIsNoSocketStays) {
  folder_.write("segment", "somebody's");
  EXPECT_FALSE(SegmentShare::create(path_, memfd_.get(), kBytes));
  EXPECT_EQ(testing::read_file(path_), "somebody's");
}

TEST_F(SegmentShareTest, OnlyMemoryThatCannotShrinkIsTaken) {
  const FileDescriptor listener = listen_on(path_).value();
  const FileDescriptor unsealed(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), kBytes), 0);
  const std::vector<std::byte> good = mooncake::encode_segment(0, 0, kBytes, kPlace);
  const std::vector<std::byte> too_much = mooncake::encode_segment(0, 0, 2 * kBytes, kPlace);
  struct Lie {
    std::vector<std::byte> message;
    std::vector<int> fds;
  };
  TimePoint now = now_;
  const auto asking = peer();
  for (const Lie& lie :
       {Lie{good, {unsealed.get()}}, Lie{good, {}}, Lie{good, {memfd_.get(), memfd_.get()}},
        Lie{too_much, {memfd_.get()}}, Lie{std::vector<std::byte>(30), {memfd_.get()}},
        Lie{{std::byte{8}}, {memfd_.get()}}}) {
    asking->poll(now);
    const FileDescriptor connection = *std::move(accept_from(listener.get()).value());
    ASSERT_TRUE(send_message(connection.get(), lie.message, lie.fds));
    EXPECT_FALSE(asking->poll(now));
    EXPECT_NE(asking->problem(), "");
    EXPECT_EQ(asking->place(), SegmentPlace());
    now += std::chrono::seconds(1);
  }
}

}  // namespace
}  // namespace tiercel
