// SPDX-License-Identifier: Apache-2.0
#include "base/event_fd.h"

#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

namespace tiercel {
namespace {

bool is_readable(int fd) {
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, 0) == 1 && (entry.revents & POLLIN) != 0;
}

TEST(EventFd, IsReadableFromSignalToDrain) {
  EventFd event = EventFd::create().value();
  EXPECT_FALSE(is_readable(event.fd()));
  event.signal();
  EXPECT_TRUE(is_readable(event.fd()));
  EXPECT_EQ(event.drain(), 1u);
  EXPECT_FALSE(is_readable(event.fd()));
}

TEST(EventFd, SignalsAddUp) {
  EventFd event = EventFd::create().value();
  for (int i = 0; i < 5; ++i) event.signal();
  EXPECT_EQ(event.drain(), 5u);
  EXPECT_EQ(event.drain(), 0u);
}

TEST(EventFd, FullCounterNeitherBlocksNorLosesTheSignal) {
  EventFd event = EventFd::create().value();
  const uint64_t full = UINT64_MAX - 1;
  ASSERT_EQ(::write(event.fd(), &full, sizeof full), static_cast<ssize_t>(sizeof full));
  event.signal();
  EXPECT_TRUE(is_readable(event.fd()));
  EXPECT_EQ(event.drain(), full);
}

TEST(EventFd, WakesAThreadThatWaits) {
  EventFd event = EventFd::create().value();
  std::thread signaller([&] { event.signal(); });
  pollfd entry{.fd = event.fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&entry, 1, 60'000), 1);
  signaller.join();
}

TEST(EventFd, OnlyAnEventfdThatCannotBlockIsAdopted) {
  EventFd event = EventFd::create().value();
  auto adopted = EventFd::adopt(FileDescriptor(::dup(event.fd())));
  ASSERT_TRUE(adopted) << adopted.error().to_string();
  adopted->signal();
  EXPECT_EQ(event.drain(), 1u);
  EXPECT_EQ(EventFd::adopt(FileDescriptor(::eventfd(0, EFD_CLOEXEC))).code(), Code::kInvalid);
  EXPECT_EQ(EventFd::adopt(FileDescriptor(::open("/dev/null", O_RDWR | O_CLOEXEC))).code(),
            Code::kInvalid);
  EXPECT_EQ(EventFd::adopt(FileDescriptor()).code(), Code::kInvalid);
}

TEST(EventFd, ClosesOnExec) {
  const EventFd event = EventFd::create().value();
  EXPECT_NE(::fcntl(event.fd(), F_GETFD) & FD_CLOEXEC, 0);
}

}  // namespace
}  // namespace tiercel
