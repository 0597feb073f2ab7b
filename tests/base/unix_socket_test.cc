// SPDX-License-Identifier: Apache-2.0
#include "base/unix_socket.h"

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/event_fd.h"
#include "base/manual_clock.h"
#include "support/temp_folder.h"

namespace tiercel {
namespace {

size_t open_descriptors() {
  size_t count = 0;
  DIR* const folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

class UnixSocket : public ::testing::Test {
 protected:
  UnixSocket() {
    auto sockets = make_socket_pair().value();
    here_ = std::move(sockets.first);
    there_ = std::move(sockets.second);
  }

  // As send_message, which never would, with any number of descriptors.
  void send_fds(size_t count) {
    std::vector<char> control(CMSG_SPACE(sizeof(int) * count));
    char byte = 1;
    iovec part{&byte, 1};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int) * count);
    for (size_t i = 0; i < count; ++i) {
      const int fd = here_.get();
      std::memcpy(CMSG_DATA(head) + i * sizeof(int), &fd, sizeof(int));
    }
    ASSERT_EQ(::sendmsg(here_.get(), &message, 0), 1);
  }

  FileDescriptor here_, there_;
  const std::array<std::byte, 3> bytes_ = {std::byte{1}, std::byte{2}, std::byte{3}};
};

TEST_F(UnixSocket, MessagesArriveWholeInOrderAndWithTheirDescriptors) {
  EventFd event = EventFd::create().value();
  const std::array<int, 1> fds = {event.fd()};
  ASSERT_TRUE(send_message(here_.get(), bytes_, fds));
  ASSERT_TRUE(send_message(here_.get(), std::span(bytes_).first(1)));
  auto first = receive_message(there_.get());
  ASSERT_TRUE(first && first->has_value());
  EXPECT_EQ((**first).bytes, std::vector(bytes_.begin(), bytes_.end()));
  ASSERT_EQ((**first).fds.size(), 1u);
  EventFd::adopt(std::move((**first).fds[0])).value().signal();
  EXPECT_EQ(event.drain(), 1u);
  auto second = receive_message(there_.get());
  ASSERT_TRUE(second && second->has_value());
  EXPECT_EQ((**second).bytes.size(), 1u);
  auto none = receive_message(there_.get());
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->has_value());
}

TEST_F(UnixSocket, WhatWasSaidBeforeAHangUpIsHeardAlsoIfTheOtherSideHasNotReadAll) {
  ASSERT_TRUE(send_message(there_.get(), bytes_));
  ASSERT_TRUE(send_message(here_.get(), bytes_));
  here_.reset();
  auto message = receive_message(there_.get());
  ASSERT_TRUE(message) << message.error().to_string();
  EXPECT_TRUE(message->has_value());
  EXPECT_EQ(receive_message(there_.get()).code(), Code::kUnavailable);
  EXPECT_EQ(send_message(there_.get(), bytes_).code(), Code::kUnavailable);
}

TEST_F(UnixSocket, MoreDescriptorsThanAnyOfOursAreRefusedAndClosed) {
  const size_t before = open_descriptors();
  send_fds(kMessageFdsMax + 1);
  EXPECT_EQ(receive_message(there_.get()).code(), Code::kCorrupt);
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(UnixSocket, DescriptorsForWhichThereIsNoRoomAreToldApart) {
  send_fds(3);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit low{.rlim_cur = 3, .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  const auto message = receive_message(there_.get());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_EQ(message.code(), Code::kNoSpace);
  EXPECT_NE(message.error().message().find("ulimit -n"), std::string::npos);
}

TEST_F(UnixSocket, OverlongMessagesAreRefused) {
  const std::vector<std::byte> longest(kSocketMessageBytesMax);
  ASSERT_TRUE(send_message(here_.get(), longest));
  EXPECT_TRUE(receive_message(there_.get()));
  ASSERT_TRUE(send_message(here_.get(), std::vector<std::byte>(kSocketMessageBytesMax + 1)));
  EXPECT_EQ(receive_message(there_.get()).code(), Code::kCorrupt);
}

TEST_F(UnixSocket, SenderIsNeverMadeToWait) {
  const std::vector<std::byte> longest(kSocketMessageBytesMax);
  Status sent;
  for (int i = 0; i < 100'000 && sent; ++i) sent = send_message(here_.get(), longest);
  EXPECT_EQ(sent.code(), Code::kBusy);
}

TEST_F(UnixSocket, OtherUsersAreRefusedWithBothNumbers) {
  const SocketPeer peer = socket_peer(here_.get()).value();
  EXPECT_EQ(peer.pid, ::getpid());
  EXPECT_TRUE(check_same_user(peer));
  const Status other = check_same_user({.pid = 1, .uid = ::geteuid() + 1});
  ASSERT_EQ(other.code(), Code::kInvalid);
  EXPECT_NE(other.error().message().find("user " + std::to_string(::geteuid() + 1) +
                                         "; allowed: " + std::to_string(::geteuid())),
            std::string::npos);
}

TEST_F(UnixSocket, ConnectWaitsNoLongerThanItsDeadlineWhereNobodyIsLetIn) {
  const testing::TempFolder folder;
  const ManualClock clock;
  const auto listener = listen_on(folder.path("s"));
  ASSERT_TRUE(listener);
  EXPECT_EQ(connect_to(folder.path("s"), clock.now(), clock).code(), Code::kTimeout);
  EXPECT_TRUE(connect_to(folder.path("s"), kNoDeadline, clock));
  EXPECT_EQ(connect_to(folder.path("other"), kNoDeadline, clock).code(), Code::kUnavailable);
  EXPECT_EQ(connect_to(std::string(200, 'a'), kNoDeadline, clock).code(), Code::kInvalid);
  EXPECT_EQ(listen_on(folder.path("s")).code(), Code::kUnavailable);
}

}  // namespace
}  // namespace tiercel
