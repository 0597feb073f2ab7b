// SPDX-License-Identifier: Apache-2.0
//
// A sidecar that does not start, or not as it should: whoever reads Store::state() knows why, and
// what to do.
#include <filesystem>

#include <signal.h>
#include <sys/resource.h>

#include "store/mooncake/stub_fixture.h"
#include "support/temp_folder.h"

namespace tiercel {
namespace {

using std::chrono::milliseconds;
using testing::StubPython;

class MooncakeStartTest : public MooncakeStubTest {
 protected:
  static std::string setup_that(const std::string& does) {
    return "    def setup(self, *arguments):\n        " + does + "\n";
  }
  static StubPython::Module module_that(const std::string& does) {
    return {"import os, sys, time\n" + does + "\n"};
  }
};

constexpr const char* kInstall = "scripts/install-deps --for mooncake";

TEST_F(MooncakeStartTest, NamesThePythonThatIsNotThereAndTheCommandThatInstallsIt) {
  const std::string text = trouble("mooncake://127.0.0.1:1?python=/nowhere/python3");
  expect_says(text, "'/nowhere/python3' could not be started: execve: No such file");
  expect_says(text, kInstall);
}

TEST_F(MooncakeStartTest, NamesAProgramThatIsNoPython) {
  for (const char* program : {"/bin/false", "/bin/ls"}) {
    const std::string text = trouble("mooncake://127.0.0.1:1?python=" + std::string(program));
    expect_says(text, program);
    expect_says(text, "before it ran the sidecar (is it a Python?)");
    expect_says(text, kInstall);
  }
  expect_says(trouble("mooncake://127.0.0.1:1?python=/etc"), "Permission denied");
}

TEST_F(MooncakeStartTest, AProgramThatNeverSpeaksMayBeNoPython) {
  const testing::TempFolder folder;
  const std::string program = folder.write("silent", "#!/bin/sh\nexec sleep 1000\n");
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const std::string text = trouble("mooncake://127.0.0.1:1?start_timeout=300ms&python=" + program);
  expect_says(text, "no answer within 300 ms");
  expect_says(text, "is it a Python?");
}

// It closes its connection first, as every Python that ends does, and takes its time.
TEST_F(MooncakeStartTest, AnEndIsToldWithItsOwnStatus) {
  const StubPython python(module_that("os.close(3)\ntime.sleep(0.2)\nos._exit(5)"));
  expect_says(trouble(python.url()), "exited with status 5 while loading the package");
}

TEST_F(MooncakeStartTest, OneThatGoesSilentAndStaysIsKilled) {
  const StubPython python(module_that("os.close(3)\ntime.sleep(3600)"));
  expect_says(trouble(python.url()), "closed its connection and does not end");
}

TEST_F(MooncakeStartTest, AnEndOfThePackagesOwnIsToldInWords) {
  expect_says(trouble(StubPython(module_that("sys.exit('no licence')")).url()), "no licence");
  const StubPython python(setup_that("raise RuntimeError('epoll: Too many open files')"));
  expect_says(trouble(python.url()), "Too many open files (raise the limit, ulimit -n)");
}

TEST_F(MooncakeStartTest, ASetupThatFailsOrDiesNamesTheAddressAndTheOptions) {
  for (const char* end : {"return -1", "os.abort()", "os._exit(7)"}) {
    const StubPython python(setup_that(end));
    const std::string text = trouble(python.url("protocol=rdma&device=mlx5_9"));
    expect_says(text, "may not be a Mooncake master");
    expect_says(text, "protocol=rdma, metadata=P2PHANDSHAKE, device=mlx5_9");
  }
}

TEST_F(MooncakeStartTest, NamesAHostThatIsNone) {
  const StubPython python;
  for (const std::string& host : {std::string("a..b"), std::string(70, 'a')}) {
    expect_says(trouble("mooncake://" + host + ":1?python=" + python.path()),
                "the Mooncake master's address " + host + ":1 cannot be resolved: no host has");
  }
}

TEST_F(MooncakeStartTest, NamesALogThatCannotBeOpened) {
  const StubPython python;
  expect_says(trouble(python.url("log=/nowhere/log")),
              "the log '/nowhere/log' cannot be opened: No such file");
}

// A full disk takes the log and nothing else.
TEST_F(MooncakeStartTest, ALogThatTakesNothingIsToldAndTheStoreWorks) {
  const StubPython python(
      "    def batch_remove(self, keys, force):\n        raise RuntimeError('to the log')\n");
  const MooncakeStore& store = open(python.url("log=/dev/full"));
  EXPECT_EQ(handle_->exists_one(test_key(1)), Code::kNotFound);
  EXPECT_EQ(store.state(), "ok, but its log cannot be written: No space left on device");
  EXPECT_EQ(handle_->remove({test_key(1)}), Codes{Code::kUnavailable});
  EXPECT_EQ(handle_->exists_one(test_key(1)), Code::kNotFound);
  EXPECT_EQ(store.sidecar().starts(), 1U);
}

TEST_F(MooncakeStartTest, ALogAtTheLimitOfFileSizeIsToldAndTheStoreWorks) {
  constexpr size_t kLimitBytes = 4 << 20;
  const testing::TempFolder folder;
  const std::string log = folder.write("log", "");
  std::filesystem::resize_file(log, kLimitBytes);
  const StubPython python;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{kLimitBytes, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const MooncakeStore& store = open(python.url("buffer_bytes=1MiB&log=" + log));
  EXPECT_EQ(handle_->exists_one(test_key(1)), Code::kNotFound);
  EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(store.state(), "ok, but its log cannot be written: File too large");
}

TEST_F(MooncakeStartTest, WhileTheNextOneStartsTheStateTellsWhyTheLastOneEnded) {
  const testing::TempFolder folder;
  const StubPython python(setup_that("marker = '" + folder.path("been_here") + "'") +
                          "        if os.path.exists(marker):\n            time.sleep(3600)\n"
                          "        open(marker, 'w').close()\n        return -77\n");
  const MooncakeStore& store = open(python.url());
  ASSERT_EQ(handle_->exists_one(test_key(1)), Code::kUnavailable);
  const TimePoint limit = in(milliseconds(testing::kHangMs));
  while (store.sidecar().starts() < 2 && clock_.now() < limit) {
    handle_->exists({test_key(1)}, in(milliseconds(1)));
  }
  expect_says(store.state(), "code -77");
  expect_says(store.state(), "the sidecar starts: ");
}

}  // namespace
}  // namespace tiercel
