// SPDX-License-Identifier: Apache-2.0
//
// The file system is full long before the bound on the files: a put that finds no space fails and
// is counted, later ones take the place of the oldest blocks, everything else goes on, and what was
// written reads back, also after a restart. In a small file system in
// memory that only a child of this test sees.
#include <fstream>

#include <fmt/core.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include "crash/disk_rig.h"
#include "support/child_process.h"
#include "support/temp_folder.h"

namespace tiercel::testing {
namespace {

constexpr uint64_t kFileSystemBytes = uint64_t{2} << 20;
constexpr uint64_t kBallastBytes = uint64_t{256} << 10;
constexpr uint32_t kBlocks = 4;  // of a prompt
constexpr const char* kSkip = "skip: ";

// "" or why there is none; for this process alone.
std::string mount_small(const std::string& path) {
  if (::geteuid() != 0) return "only root can mount a small file system";
  if (::unshare(CLONE_NEWNS) != 0) return "no mount namespace of its own";
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return "mounts are shared";
  const std::string size = "size=" + std::to_string(kFileSystemBytes);
  return ::mount("tmpfs", path.c_str(), "tmpfs", 0, size.c_str()) == 0 ? "" : "no tmpfs";
}

struct Written {
  uint64_t prompt = 0;
  uint32_t on_disk = 0;  // leading blocks
};

// Blocks that were written over others are not there any more.
void look_again(DiskRig& rig, std::vector<Written>& written) {
  for (Written& each : written) each.on_disk = rig.on_disk(each.prompt, kBlocks);
}

// Each says what went wrong.
std::string fill(DiskRig& rig, std::vector<Written>& written) {
  for (uint64_t prompt = 0; prompt < 100; ++prompt) {
    if (!rig.save(prompt, kBlocks) || !rig.settle()) return "a save fails";
    const Result<RigRead> read = rig.read(prompt, kBlocks);
    if (!read || read->loaded != kBlocks || read->wrong > 0) return "the host tier does not go on";
    written.push_back({prompt, 0});
  }
  look_again(rig, written);
  if (written.back().on_disk != kBlocks) return "what came last is not on disk";
  const CacheStats stats = rig.cache().stats();
  if (stats.disk_put_no_space == 0) return "it was never full";
  if (stats.disk_put_blocks < 50) return "nothing was written";
  if (stats.disk_put_failed != stats.disk_put_no_space) return "puts failed in another way";
  if (stats.disk.condition != StoreCondition::kUp) return "a full disk is left alone";
  return rig.cache().check(false);
}

std::string read_back(DiskRig& rig, const std::vector<Written>& written) {
  for (const Written& each : written) {
    const Result<RigRead> read = rig.read(each.prompt, kBlocks);
    if (!read) return read.error().to_string();
    if (read->wrong > 0) return "wrong bytes";
    if (read->loaded < each.on_disk) {
      return fmt::format("prompt {}: {} of {} blocks", each.prompt, read->loaded, each.on_disk);
    }
  }
  return "";
}

std::string run(const std::string& path, DiskIoWay way) {
  if (const std::string reason = mount_small(path); !reason.empty()) return kSkip + reason;
  RigOptions options;
  options.host_blocks = 32;
  options.disk.path = path + "/tier";
  options.disk.bytes = 4 * kFileSystemBytes;
  options.disk.io = way;
  options.disk.preallocate = true;
  const auto refused = DiskRig::open(options);
  if (refused) return "what does not fit can be reserved";
  if (refused.code() != Code::kNoSpace ||
      refused.error().message().find("cannot reserve") == std::string::npos) {
    return refused.error().to_string();
  }
  options.disk.preallocate = false;
  std::ofstream(path + "/ballast") << std::string(kBallastBytes, 'x');

  std::vector<Written> written;
  {
    const auto rig = DiskRig::open(options);
    if (!rig) return rig.error().to_string();
    if (const std::string wrong = fill(**rig, written); !wrong.empty()) return wrong;
    if (const std::string wrong = read_back(**rig, written); !wrong.empty()) return wrong;
    RigOptions second = options;
    second.disk.instance = "second";
    second.disk.preallocate = true;
    if (DiskRig::open(second)) return "space is reserved where there is none";
    // There is room again.
    if (::unlink((path + "/ballast").c_str()) != 0) return "no ballast";
    if (!(*rig)->save(1000, kBlocks) || !(*rig)->settle()) return "a save fails";
    written.push_back({1000, 0});
    look_again(**rig, written);
    if (written.back().on_disk != kBlocks) return "it does not write though there is room again";
    if (const Status closed = (*rig)->close(); !closed) return closed.error().to_string();
  }
  const auto rig = DiskRig::open(options);
  if (!rig) return rig.error().to_string();
  if (const std::string wrong = read_back(**rig, written); !wrong.empty()) return wrong;
  const Status closed = (*rig)->close();
  return closed ? "" : closed.error().to_string();
}

class DiskFull : public ::testing::TestWithParam<DiskIoWay> {};

TEST_P(DiskFull, PutsFailAndEverythingElseGoesOn) {
  const TempFolder temp;
  std::filesystem::create_directory(temp.path("small"));
  const std::string wrong = run_in_child([&] { return run(temp.path("small"), GetParam()); });
  if (wrong.starts_with(kSkip)) GTEST_SKIP() << wrong;
  EXPECT_EQ(wrong, "");
}

INSTANTIATE_TEST_SUITE_P(Ways, DiskFull, ::testing::Values(DiskIoWay::kAuto, DiskIoWay::kThreads),
                         [](const ::testing::TestParamInfo<DiskIoWay>& way) {
                           return std::string(to_string(way.param));
                         });

}  // namespace
}  // namespace tiercel::testing
