// SPDX-License-Identifier: Apache-2.0
#include "base/file_descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>

namespace tiercel {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }
int open_null() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }

TEST(FileDescriptor, ClosesAtTheEnd) {
  const int fd = open_null();
  {
    const FileDescriptor owner(fd);
    EXPECT_TRUE(owner);
    EXPECT_EQ(owner.get(), fd);
    EXPECT_TRUE(is_open(fd));
  }
  EXPECT_FALSE(is_open(fd));
}

TEST(FileDescriptor, EmptyOwnsNothing) {
  const FileDescriptor empty;
  EXPECT_FALSE(empty);
  EXPECT_EQ(empty.get(), -1);
  // 0 is a descriptor like others.
  FileDescriptor zero(0);
  EXPECT_TRUE(zero);
  EXPECT_EQ(zero.release(), 0);
}

TEST(FileDescriptor, MovingHandsOverAndClosesWhatWasOwned) {
  FileDescriptor first(open_null());
  const int first_fd = first.get();
  FileDescriptor second(open_null());
  const int second_fd = second.get();
  second = std::move(first);
  EXPECT_EQ(second.get(), first_fd);
  EXPECT_FALSE(is_open(second_fd));
  EXPECT_TRUE(is_open(first_fd));
  const FileDescriptor third(std::move(second));
  EXPECT_EQ(third.get(), first_fd);
  EXPECT_TRUE(is_open(first_fd));
}

TEST(FileDescriptor, ReleaseLeavesItOpen) {
  int fd = -1;
  {
    FileDescriptor owner(open_null());
    fd = owner.release();
    EXPECT_FALSE(owner);
  }
  EXPECT_TRUE(is_open(fd));
  ::close(fd);
}

}  // namespace
}  // namespace tiercel
