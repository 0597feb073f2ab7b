// SPDX-License-Identifier: Apache-2.0
#include "base/memory_limit.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

namespace tiercel {
namespace {

// A false root with the files that a test writes.
class AvailableMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "memory_limit_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = root_ / path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  void write_meminfo(uint64_t available_kib) {
    write("proc/meminfo", "MemTotal:       99999999 kB\nMemFree:          12345 kB\n" +
                              std::string("MemAvailable:   ") + std::to_string(available_kib) +
                              " kB\nBuffers:  1 kB\n");
  }
  void expect(size_t bytes, const std::string& source) {
    const MemoryLimit limit = available_memory_under(root_.string());
    EXPECT_EQ(limit.bytes, bytes);
    EXPECT_EQ(limit.source, source);
  }

  std::filesystem::path root_;
};

TEST_F(AvailableMemory, NothingReadableIsNoLimit) { expect(SIZE_MAX, ""); }

TEST_F(AvailableMemory, MachineWithoutCgroups) {
  write_meminfo(1000);
  expect(1'024'000, "available memory");
}

TEST_F(AvailableMemory, Version2LimitWins) {
  write_meminfo(1000);
  write("proc/self/cgroup", "0::/pod/container\n");
  write("sys/fs/cgroup/pod/container/memory.max", "500000\n");
  write("sys/fs/cgroup/pod/container/memory.current", "100000\n");
  expect(400'000, "cgroup limit /pod/container");
}

TEST_F(AvailableMemory, Version2AncestorWins) {
  write_meminfo(1000);
  write("proc/self/cgroup", "0::/pod/container\n");
  write("sys/fs/cgroup/pod/container/memory.max", "max\n");
  write("sys/fs/cgroup/pod/container/memory.current", "100000\n");
  write("sys/fs/cgroup/pod/memory.max", "300000\n");
  write("sys/fs/cgroup/pod/memory.current", "200000\n");
  expect(100'000, "cgroup limit /pod");
}

TEST_F(AvailableMemory, Version2MaxEverywhereIsNone) {
  write_meminfo(1000);
  write("proc/self/cgroup", "0::/pod\n");
  write("sys/fs/cgroup/pod/memory.max", "max\n");
  write("sys/fs/cgroup/pod/memory.current", "100000\n");
  expect(1'024'000, "available memory");
}

TEST_F(AvailableMemory, MachineWinsOverALooserCgroup) {
  write_meminfo(10);
  write("proc/self/cgroup", "0::/pod\n");
  write("sys/fs/cgroup/pod/memory.max", "500000\n");
  write("sys/fs/cgroup/pod/memory.current", "0\n");
  expect(10'240, "available memory");
}

TEST_F(AvailableMemory, Version2RootOfANamespaceShowsTheContainer) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", "1000\n");
  write("sys/fs/cgroup/memory.current", "400\n");
  expect(600, "cgroup limit /");
}

TEST_F(AvailableMemory, PathOfTheHostThatIsNotMountedFallsBackToTheMount) {
  write("sys/fs/cgroup/memory.max", "1000\n");
  write("sys/fs/cgroup/memory.current", "400\n");
  write("proc/self/cgroup", "0::/system.slice/docker-abc.scope\n");
  expect(600, "cgroup limit /");
  write("proc/self/cgroup", "0::/../../elsewhere\n");
  expect(600, "cgroup limit /");
}

TEST_F(AvailableMemory, UsageAboveTheLimitLeavesNothing) {
  write("proc/self/cgroup", "0::/pod\n");
  write("sys/fs/cgroup/pod/memory.max", "1000\n");
  write("sys/fs/cgroup/pod/memory.current", "1001\n");
  expect(0, "cgroup limit /pod");
}

TEST_F(AvailableMemory, InactivePageCacheCountsAsUsable) {
  write("proc/self/cgroup", "0::/pod\n");
  write("sys/fs/cgroup/pod/memory.max", "1000\n");
  write("sys/fs/cgroup/pod/memory.current", "900\n");
  write("sys/fs/cgroup/pod/memory.stat", "anon 100\ninactive_file 300\nactive_file 500\n");
  expect(400, "cgroup limit /pod");
  write("sys/fs/cgroup/pod/memory.stat", "inactive_file 5000\n");
  expect(1000, "cgroup limit /pod");
}

TEST_F(AvailableMemory, Version1LimitWins) {
  write_meminfo(1000);
  write("proc/self/cgroup",
        "9:cpu,cpuacct:/other\n4:memory:/docker/abc\n1:name=systemd:/x\n0::/\n");
  write("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "500000\n");
  write("sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "100000\n");
  write("sys/fs/cgroup/memory/docker/abc/memory.stat",
        "inactive_file 1\ntotal_inactive_file 50000\n");
  expect(450'000, "cgroup limit /docker/abc");
}

TEST_F(AvailableMemory, Version1AncestorWinsAndItsHugeNumberIsNone) {
  write_meminfo(1000);
  write("proc/self/cgroup", "4:hugetlb,memory:/docker/abc\n");
  write("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "100000\n");
  expect(1'024'000, "available memory");
  write("sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "300000\n");
  write("sys/fs/cgroup/memory/docker/memory.usage_in_bytes", "100000\n");
  expect(200'000, "cgroup limit /docker");
}

TEST_F(AvailableMemory, Version1OfOtherControllersIsNotRead) {
  write("proc/self/cgroup", "4:memory_other,cpu:/a\n");
  write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1\n");
  expect(SIZE_MAX, "");
}

TEST_F(AvailableMemory, DamagedFilesAreNoLimit) {
  write("proc/meminfo", "MemAvailable:\nMemAvailableX: 5 kB\nMemAvailable: x kB\n");
  write("proc/self/cgroup", "\nnonsense\n0:\n:::\n0::\n");
  write("sys/fs/cgroup/memory.max", "12345678901234567890123\n");
  expect(SIZE_MAX, "");
}

TEST(AvailableMemoryOfThisMachine, IsReadable) {
  const MemoryLimit limit = available_memory();
  EXPECT_LT(limit.bytes, SIZE_MAX);
  EXPECT_FALSE(limit.source.empty());
}

}  // namespace
}  // namespace tiercel
