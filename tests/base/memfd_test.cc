// SPDX-License-Identifier: Apache-2.0
#include "base/memfd.h"

#include <array>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "support/child_process.h"
#include "support/limits.h"

namespace tiercel {
namespace {

TEST(Memfd, SizeCannotBeChangedAndOnlyTheOwnerMayOpenIt) {
  const auto fd = make_memfd("test", 8192);
  ASSERT_TRUE(fd) << fd.error().to_string();
  EXPECT_NE(::ftruncate(fd->get(), 4096), 0);
  EXPECT_NE(::ftruncate(fd->get(), 1 << 20), 0);
  struct stat status {};
  ASSERT_EQ(::fstat(fd->get(), &status), 0);
  EXPECT_EQ(status.st_size, 8192);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
  EXPECT_NE(::fcntl(fd->get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(Memfd, NameThatIsTooLongAndSizeThatCannotBeAreRefused) {
  EXPECT_EQ(make_memfd(std::string(300, 'a'), 4096).code(), Code::kInvalid);
  EXPECT_EQ(make_memfd("test", SIZE_MAX).code(), Code::kNoSpace);
}

// The system sends SIGXFSZ, which ends a process that does not expect it.
TEST(Memfd, LimitOfFileSizeIsAnErrorThatNamesItAndNotTheEndOfTheProcess) {
  EXPECT_EQ(testing::run_in_child([]() -> std::string {
              testing::set_limit(RLIMIT_FSIZE, 8192);
              if (!make_memfd("test", 8192)) return "what fits is refused";
              const auto fd = make_memfd("test", 8193);
              if (fd.code() != Code::kNoSpace) return "another code";
              sigset_t pending;
              sigpending(&pending);
              if (sigismember(&pending, SIGXFSZ) != 0) return "a signal is left";
              sigset_t blocked;
              pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
              if (sigismember(&blocked, SIGXFSZ) != 0) return "the signal stays blocked";
              const std::string& message = fd.error().message();
              const bool names_it = message.find("ulimit -f") != std::string::npos &&
                                    message.find("8 KiB") != std::string::npos;
              return names_it ? "" : message;
            }),
            "");
}

TEST(Memfd, LimitOfOpenFilesIsNamed) {
  EXPECT_EQ(testing::run_in_child([]() -> std::string {
              testing::set_limit(RLIMIT_NOFILE, 0);
              const auto fd = make_memfd("test", 4096);
              if (fd.code() != Code::kUnavailable) return "another code";
              const std::string& message = fd.error().message();
              return message.find("ulimit -n") != std::string::npos ? "" : message;
            }),
            "");
}

TEST(Memfd, OnlySealedOnesOfEnoughBytesPassTheCheck) {
  const auto good = make_memfd("test", 8192);
  ASSERT_TRUE(good);
  EXPECT_TRUE(check_memfd(good->get(), 8192, "it"));
  const Status small = check_memfd(good->get(), 8193, "it");
  ASSERT_EQ(small.code(), Code::kInvalid);
  EXPECT_EQ(small.error().message(), "it has 8192 bytes; allowed: at least 8193");
  const FileDescriptor open(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(open.get(), 8192), 0);
  EXPECT_EQ(check_memfd(open.get(), 8192, "it").code(), Code::kInvalid);
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  EXPECT_EQ(check_memfd(pipe[0], 1, "it").code(), Code::kInvalid);
  ::close(pipe[0]);
  ::close(pipe[1]);
  EXPECT_EQ(check_memfd(-1, 1, "it").code(), Code::kInvalid);
}

TEST(Memfd, ArenasOfOneMemfdShareTheirBytes) {
  auto fd = make_memfd("test", 10000);
  ASSERT_TRUE(fd);
  auto first = Arena::map(FileDescriptor(::dup(fd->get())), 9999, {});
  auto second = Arena::map(std::move(*fd), 9999, {});
  ASSERT_TRUE(first && second);
  EXPECT_EQ((**first).kind(), ArenaKind::kMemfd);
  EXPECT_EQ((**first).memory().size(), 9999u);
  EXPECT_NE((**first).memory().data(), (**second).memory().data());
  (**first).memory()[9998] = std::byte{7};
  EXPECT_EQ((**second).memory()[9998], std::byte{7});
}

TEST(Memfd, ArenaOfNothingOrOfMoreThanThereIsIsRefused) {
  const auto map = [](size_t bytes) {
    return Arena::map(make_memfd("test", 4096).value(), bytes, {}).code();
  };
  EXPECT_EQ(map(0), Code::kInvalid);
  EXPECT_EQ(map(4097), Code::kInvalid);
  EXPECT_EQ(map(SIZE_MAX), Code::kInvalid);
  EXPECT_EQ(map(4096), Code::kOk);
}

}  // namespace
}  // namespace tiercel
