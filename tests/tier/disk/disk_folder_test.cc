// SPDX-License-Identifier: Apache-2.0

#include "tier/disk/disk_folder.h"

#include <array>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/quantity.h"
#include "support/child_process.h"
#include "tier/disk/disk_folder_fixture.h"
#include "tier/disk/disk_geometry.h"

namespace tiercel {
namespace {

namespace fs = std::filesystem;

using testing::DiskFolderTest;
using testing::says;

unsigned mode_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777;
}

TEST_F(DiskFolderTest, ANewFolderIsEmptyAndForItsOwnerOnly) {
  ::umask(0);
  options.payload_bytes = {{4096, 9000}};
  const auto folder = open();
  ASSERT_TRUE(folder);
  EXPECT_EQ(folder->rank_count(), 2u);
  EXPECT_EQ(contents(*folder).blocks.size(), 0u);
  EXPECT_EQ(folder->files(1)->next_sequence, 1u);
  EXPECT_TRUE(says(joined(folder->notes()), "made " + quoted_path(options.path + "/main") + ": "));
  for (const char* name : {"", "rank0", "rank1"}) EXPECT_EQ(mode_of(file(name)), 0700u) << name;
  EXPECT_EQ(mode_of(options.path), 0700u);
  for (const char* name : {"owner", "rank0/data", "rank0/metadata", "rank1/data"}) {
    EXPECT_EQ(mode_of(file(name)), 0600u) << name;
  }
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const std::string name = "rank" + std::to_string(rank);
    EXPECT_EQ(fs::file_size(file(name + "/data")), disk_data_bytes(folder->geometry(), rank));
    EXPECT_EQ(fs::file_size(file(name + "/metadata")), disk_metadata_bytes(folder->geometry()));
  }
  EXPECT_FALSE(folder->files(2));
}

TEST_F(DiskFolderTest, IsFoundAgainAsItWas) {
  DiskFolderId id{};
  {
    const auto folder = open();
    ASSERT_TRUE(folder);
    id = folder->id();
    write_block(*folder, 3, "a", 7);
    write_block(*folder, 1, "b", 5);
  }
  EXPECT_FALSE(fs::exists(file("owner"))) << "nothing is left of an owner that has closed it";
  const auto folder = open();
  ASSERT_TRUE(folder);
  EXPECT_EQ(folder->id(), id);
  EXPECT_TRUE(folder->notes().empty()) << joined(folder->notes());
  const DiskContents found = contents(*folder);
  EXPECT_EQ(keys_of(found), keys({"b", "a"}));
  EXPECT_EQ(found.blocks[1].slot, SlotId(3));
  EXPECT_TRUE(found.blocks[1].has_parent);
  EXPECT_EQ(found.blocks[1].parent, testing::digest_of<BlockKey>("parent"));
  EXPECT_EQ(folder->files(0)->next_sequence, 8u);
}

TEST_F(DiskFolderTest, TwoFoldersHaveDifferentIds) {
  const auto one = open();
  options.instance = "other";
  const auto other = open();
  ASSERT_TRUE(one && other);
  EXPECT_NE(one->id(), other->id());
}

TEST_F(DiskFolderTest, GrowsAndKeepsWhatItHas) {
  options.payload_bytes = {{4096, 100}};
  {
    const auto folder = open();
    ASSERT_TRUE(folder);
    write_block(*folder, folder->geometry().slot_count_max() - 1, "last", 1);
  }
  options.bytes *= 3;
  const auto folder = open();
  ASSERT_TRUE(folder);
  EXPECT_TRUE(says(joined(folder->notes()), "has grown from "));
  EXPECT_EQ(keys_of(contents(*folder)), keys({"last"}));
  EXPECT_GT(bytes_of_files(), options.bytes - 20000);
  EXPECT_LE(bytes_of_files(), options.bytes);
  EXPECT_EQ(folder->files(1)->header.generation, 2u);
  write_block(*folder, folder->geometry().slot_count_max() - 1, "new last", 2);
  EXPECT_EQ(keys_of(contents(*folder)), keys({"last", "new last"}));
}

TEST_F(DiskFolderTest, ShrinksAndSaysHowManyBlocksWent) {
  options.payload_bytes = {{4096, 100}};
  uint32_t last = 0;
  {
    const auto folder = open();
    ASSERT_TRUE(folder);
    last = folder->geometry().slot_count_max() - 1;
    write_block(*folder, 0, "first", 1);
    write_block(*folder, last, "last", 2);
    write_block(*folder, last - 1, "next to last", 3);
  }
  options.bytes /= 2;
  {
    const auto folder = open();
    ASSERT_TRUE(folder);
    EXPECT_TRUE(says(joined(folder->notes()), "; 2 blocks have gone"));
    EXPECT_EQ(keys_of(contents(*folder)), keys({"first"}));
    EXPECT_LE(bytes_of_files(), options.bytes);
  }
  options.bytes *= 2;
  const auto folder = open();
  ASSERT_TRUE(folder);
  EXPECT_EQ(folder->geometry().slot_count_max(), last + 1);
  EXPECT_EQ(keys_of(contents(*folder)), keys({"first"})) << "what went does not come back";
}

TEST_F(DiskFolderTest, ExtentsOfSeveralGroupsKeepTheirSizeWhenItGrowsAndShrinks) {
  options.payload_bytes = {{40000, 20000}, {4096, 100}};
  options.bytes = 64 << 20;
  std::vector<uint32_t> slots_per_extent;
  {
    const auto folder = open();
    ASSERT_TRUE(folder);
    slots_per_extent = folder->geometry().options().slots_per_extent;
    EXPECT_GE(folder->geometry().extent_count(), kDiskExtentsPerGroup);
    write_block(*folder, 0, "a", 1, 1);
  }
  for (const uint64_t bytes : {uint64_t{200} << 20, uint64_t{10} << 20, uint64_t{64} << 20}) {
    options.bytes = bytes;
    const auto folder = open();
    ASSERT_TRUE(folder);
    EXPECT_EQ(folder->geometry().options().slots_per_extent, slots_per_extent);
    EXPECT_EQ(keys_of(contents(*folder)), keys({"a"}));
    EXPECT_LE(bytes_of_files(), bytes);
    EXPECT_GT(bytes_of_files(), bytes - (2 << 20));
  }
}

TEST_F(DiskFolderTest, TooSmallIsRefusedWithTheLeastThatIsAllowed) {
  options.bytes = 10000;
  EXPECT_EQ(refusal(),
            "invalid: disk_bytes is 10KB; allowed: at least 20640B, which is one block on all "
            "ranks");
  EXPECT_FALSE(fs::exists(options.path)) << "a refusal makes nothing";
  options.bytes = 20640;
  const auto folder = open();
  ASSERT_TRUE(folder);
  EXPECT_EQ(folder->geometry().slot_count_max(), 1u);
}

TEST_F(DiskFolderTest, AnotherShapeIsRefusedAndNothingOverwritten) {
  options.payload_bytes = {{4096, 8192}, {100, 100}};
  {
    const auto folder = open();
    ASSERT_TRUE(folder);
    write_block(*folder, 0, "a", 1);
  }
  const auto before = snapshot();
  const std::string path = options.path + "/main";
  const auto expect_refused = [&](PayloadBytes payload_bytes, const std::string& difference) {
    options.payload_bytes = std::move(payload_bytes);
    EXPECT_EQ(refusal(), "invalid: disk tier " + quoted_path(path) + " was made for " + difference +
                             "; nothing was overwritten; choose another disk_instance (it is "
                             "\"main\") or disk_path, or set disk_reset to lose what is there");
    EXPECT_EQ(snapshot(), before);
  };
  expect_refused({{4096}, {100}}, "2 ranks, not 1");
  expect_refused({{4096, 8192, 1}, {100, 100, 1}}, "2 ranks, not 3");
  expect_refused({{4096, 8192}}, "2 groups, not 1");
  expect_refused({{4096, 8193}, {100, 100}}, "blocks of 8KiB in group 0 on rank 1, not 8193B");
  expect_refused({{4096, 8192}, {99, 100}}, "blocks of 100B in group 1 on rank 0, not 99B");
}

TEST_F(DiskFolderTest, AnotherVersionIsRefusedAndNothingOverwritten) {
  ASSERT_TRUE(open());
  overwrite(file("rank0/metadata"), 8, std::string("\3", 1));
  const auto before = snapshot();
  EXPECT_TRUE(says(refusal(), "invalid: " + quoted_path(file("rank0/metadata")) +
                                  ": disk format version 3 is newer than version 2"));
  EXPECT_EQ(snapshot(), before);
  options.reset = true;
  EXPECT_TRUE(open());
  options.reset = false;
  EXPECT_TRUE(open());
  overwrite(file("rank0/data"), 8, std::string("\0", 1));
  EXPECT_TRUE(says(refusal(), "disk format version 0 is older than version 2"));
}

TEST_F(DiskFolderTest, FilesThatAreNotOursAreRefusedAndNotOverwritten) {
  for (const char* name : {"rank0/data", "rank0/metadata", "rank1/metadata"}) {
    fs::remove_all(options.path);
    options.payload_bytes = {{4096, 4096}};
    fs::create_directories(fs::path(file(name)).parent_path());
    std::ofstream(file(name)) << std::string(20000, 'x');
    EXPECT_TRUE(says(refusal(), "corrupt: " + quoted_path(file(name)) + ": no disk header magic"));
    EXPECT_EQ(testing::read_file(file(name)), std::string(20000, 'x'));
    options.reset = true;
    EXPECT_TRUE(open());
    options.reset = false;
  }
}

TEST_F(DiskFolderTest, ResetStartsAnotherShapeAnewAndLeavesNothingOfTheOldOne) {
  options.payload_bytes = {{4096, 8192, 100}};
  {
    const auto folder = open();
    ASSERT_TRUE(folder);
    write_block(*folder, 0, "a", 1);
  }
  options.payload_bytes = {{4096}};
  options.reset = true;
  {
    const auto folder = open();
    ASSERT_TRUE(folder);
    EXPECT_TRUE(says(joined(folder->notes()), "because of disk_reset"));
    EXPECT_FALSE(says(joined(folder->notes()), "nothing was overwritten"));
    const DiskContents found = contents(*folder);
    EXPECT_TRUE(found.blocks.empty());
    EXPECT_EQ(found.torn, 0u);
    write_block(*folder, 0, "b", 1);
    EXPECT_FALSE(fs::exists(file("rank1")));
    EXPECT_FALSE(fs::exists(file("rank2")));
    EXPECT_LE(bytes_of_files(), options.bytes);
  }
  const auto folder = open();
  ASSERT_TRUE(folder);
  EXPECT_EQ(keys_of(contents(*folder)), keys({"b"})) << "a folder that fits is not reset";
}

TEST_F(DiskFolderTest, BadOptionsAreNamedWithTheirValue) {
  for (const char* name : {"", ".hidden", "a/b", "..", "a b", "a\n"}) {
    options.instance = name;
    EXPECT_TRUE(says(refusal(), "invalid: disk_instance is \"")) << name;
    EXPECT_TRUE(says(refusal(), "allowed: 1 to 64 of A-Z a-z 0-9 . _ -")) << name;
  }
  options.instance = std::string(65, 'a');
  EXPECT_TRUE(says(refusal(), "invalid: disk_instance is"));
  options.instance = std::string(64, 'a');
  EXPECT_TRUE(open());
  options.path = "";
  EXPECT_EQ(refusal(), "invalid: disk_path is \"\"; allowed: a folder");
  options.payload_bytes = {};
  options.path = temp_.path("other");
  EXPECT_TRUE(says(refusal(), "group count is 0"));
}

TEST_F(DiskFolderTest, APathThatCannotBeUsedIsNamedWithTheReason) {
  options.path = temp_.write("file", "mine");
  EXPECT_EQ(refusal(), "invalid: disk_path: " + quoted_path(options.path) +
                           " is not a folder; name another, or remove it");
  EXPECT_EQ(testing::read_file(options.path), "mine");
  options.path = temp_.path("missing/tier");
  EXPECT_EQ(refusal(), "unavailable: disk_path: folder " + quoted_path(options.path) +
                           " cannot be made: its parent is not there; make it, or mount what "
                           "belongs there");
}

TEST_F(DiskFolderTest, LinksBelowTheFolderAreNotFollowed) {
  fs::create_directories(options.path);
  fs::create_directory(temp_.path("elsewhere"));
  fs::create_directory_symlink(temp_.path("elsewhere"), options.path + "/main");
  EXPECT_TRUE(
      says(refusal(), "invalid: disk_path: " + quoted_path(options.path + "/main") + " is "));
  fs::remove(options.path + "/main");
  fs::create_directories(file("rank0"));
  const std::string target = temp_.write("target", "mine");
  fs::create_symlink(target, file("rank0/data"));
  EXPECT_EQ(refusal(),
            "invalid: " + quoted_path(file("rank0/data")) + " is a link; allowed: a file");
  EXPECT_EQ(testing::read_file(target), "mine");
}

TEST_F(DiskFolderTest, APipeInPlaceOfAFileIsRefusedAndHoldsNobodyUp) {
  fs::create_directories(file("rank0"));
  ASSERT_EQ(::mkfifo(file("rank0/data").c_str(), 0600), 0);
  EXPECT_EQ(refusal(),
            "invalid: " + quoted_path(file("rank0/data")) + " is no regular file; remove it");
}

TEST_F(DiskFolderTest, AFolderThatCannotBeWrittenIsNamed) {
  fs::create_directory(options.path);
  fs::permissions(temp_.path(""), fs::perms(0755));
  fs::permissions(options.path, fs::perms(0555));
  EXPECT_EQ(testing::run_in_child([&]() -> std::string {
              // Root may write everywhere.
              if (::geteuid() == 0 && ::setuid(65534) != 0) return "cannot become nobody";
              const std::string text = refusal();
              const std::string wanted = "unavailable: disk_path: cannot make folder " +
                                         quoted_path(options.path + "/main") +
                                         ": Permission denied";
              return text == wanted ? "" : text;
            }),
            "");
}

TEST_F(DiskFolderTest, FilesLongerThanTheProcessMayWriteAreRefused) {
  EXPECT_EQ(testing::run_in_child([&]() -> std::string {
              const rlimit limit{.rlim_cur = 100 * 1024, .rlim_max = 100 * 1024};
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return "no limit";
              const std::string text = refusal();
              if (text.find("RLIMIT_FSIZE = 100KiB") == std::string::npos) return text;
              options.bytes = 64 * 1024;
              return open() ? "" : "a file below the limit is refused";
            }),
            "");
}

TEST_F(DiskFolderTest, PreallocationTakesTheSpaceNow) {
  struct stat status {};
  options.bytes = 8 << 20;
  ASSERT_TRUE(open());
  ASSERT_EQ(::stat(file("rank0/data").c_str(), &status), 0);
  EXPECT_LT(status.st_blocks * 512, 1 << 20);
  options.preallocate = true;
  ASSERT_TRUE(open());
  ASSERT_EQ(::stat(file("rank0/data").c_str(), &status), 0);
  EXPECT_GE(status.st_blocks * 512, status.st_size - 4096);
}

TEST_F(DiskFolderTest, PreallocationThatDoesNotFitIsRefusedAndGivesBackWhatItTook) {
  // Needs a small file system that says no at once; elsewhere this would fill the disk.
  constexpr const char* kSmall = "/dev/shm";
  struct statvfs space {};
  if (::statvfs(kSmall, &space) != 0 || space.f_blocks == 0 || ::access(kSmall, W_OK) != 0 ||
      space.f_blocks * space.f_frsize > uint64_t{1} << 42) {
    GTEST_SKIP() << "no small file system at " << kSmall;
  }
  std::string folder = std::string(kSmall) + "/tiercel_test_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  options.path = folder + "/tier";
  options.payload_bytes = {{uint64_t{1} << 30}};
  options.bytes = uint64_t{1} << 43;
  options.preallocate = true;
  EXPECT_TRUE(
      says(refusal(), "no_space: cannot reserve 8 TiB for " + quoted_path(file("rank0/data"))));
  EXPECT_EQ(bytes_of_files(), 0u);
  options.preallocate = false;
  EXPECT_TRUE(open());
  fs::remove_all(folder);
}

TEST_F(DiskFolderTest, DirectIoIsUsedOrSaidToBeMissing) {
  {
    const auto folder = open();
    ASSERT_TRUE(folder);
    const Result<DiskRankFiles> files = folder->files(0);
    EXPECT_EQ(files->direct, (::fcntl(files->data.get(), F_GETFL) & O_DIRECT) != 0);
    EXPECT_EQ(files->direct, joined(folder->notes()).find("page cache") == std::string::npos);
    EXPECT_EQ(::fcntl(files->metadata.get(), F_GETFL) & (O_DIRECT | O_NONBLOCK), 0);
    EXPECT_EQ(::fcntl(files->data.get(), F_GETFL) & O_NONBLOCK, 0);
    EXPECT_EQ(::fcntl(files->data.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  }
  options.direct = false;
  const auto folder = open();
  ASSERT_TRUE(folder);
  EXPECT_FALSE(folder->files(0)->direct);
  EXPECT_EQ(::fcntl(folder->files(0)->data.get(), F_GETFL) & O_DIRECT, 0);
}

TEST_F(DiskFolderTest, OfTheTwoHeadersTheNewerThatIsWholeCounts) {
  DiskHeader header;
  {
    const auto folder = open();
    ASSERT_TRUE(folder);
    header = folder->files(0)->header;
    EXPECT_EQ(header.generation, 1u);
  }
  std::array<std::byte, kDiskHeaderBytes> bytes;
  header.generation = 2;
  header.first_sequence = 50;
  encode_disk_header(header, bytes);
  const std::string page(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  overwrite(file("rank0/metadata"), disk_header_offset(2), page);
  EXPECT_EQ(open()->files(0)->header, header);
  EXPECT_EQ(open()->files(0)->next_sequence, 50u);
  overwrite(file("rank0/metadata"), disk_header_offset(2) + 70, "torn");
  EXPECT_EQ(open()->files(0)->header.generation, 1u);
  overwrite(file("rank0/metadata"), disk_header_offset(1), page);
  EXPECT_TRUE(says(joined(open()->notes()), "both headers of the metadata file of rank 0"))
      << "a page that was copied counts for nothing";
}

class LostHeaders : public DiskFolderTest, public ::testing::WithParamInterface<uint32_t> {
 protected:
  LostHeaders() { options.payload_bytes = {{4096, 4096}}; }
  // A block on both ranks, then both headers of one rank's metadata file are damaged.
  void damage() {
    {
      const auto folder = open();
      ASSERT_TRUE(folder);
      write_block(*folder, 0, "a", 1);
    }
    overwrite(metadata(), 100, "torn");
    overwrite(metadata(), kDiskHeaderBytes + 100, "torn");
  }
  std::string rank() const { return "rank" + std::to_string(GetParam()); }
  std::string metadata() const { return file(rank() + "/metadata"); }
};

TEST_P(LostHeaders, TheTierStartsColdAndSaysSo) {
  damage();
  {
    const auto folder = open();
    ASSERT_TRUE(folder);
    EXPECT_TRUE(says(joined(folder->notes()), "both headers of the metadata file of rank " +
                                                  std::to_string(GetParam()) + " are damaged"));
    EXPECT_TRUE(says(joined(folder->notes()), "checksum of the disk header does not match"));
    const DiskContents found = contents(*folder);
    EXPECT_TRUE(found.blocks.empty());
    write_block(*folder, 1, "b", 2);
  }
  const auto folder = open();
  ASSERT_TRUE(folder);
  EXPECT_TRUE(folder->notes().empty()) << joined(folder->notes());
  EXPECT_EQ(keys_of(contents(*folder)), keys({"b"}));
}

TEST_P(LostHeaders, WithAnotherShapeIsRefusedAndNotOverwritten) {
  damage();
  const auto before = snapshot();
  options.payload_bytes = {{8192, 8192}};
  EXPECT_TRUE(says(refusal(), "was made for blocks of 4KiB"));
  EXPECT_EQ(snapshot(), before);
}

TEST_P(LostHeaders, WithoutAHeaderOfTheDataFileIsRefusedAndNotOverwritten) {
  damage();
  overwrite(file(rank() + "/data"), 100, "torn");
  const auto before = snapshot();
  EXPECT_TRUE(says(refusal(), "corrupt: " + quoted_path(metadata())));
  EXPECT_EQ(snapshot(), before);
}

TEST_P(LostHeaders, BesideTheHeaderOfAnotherVersionIsRefusedAndNotOverwritten) {
  damage();
  overwrite(metadata(), 8, std::string("\3", 1));
  const auto before = snapshot();
  EXPECT_TRUE(says(refusal(), "version 3 is newer"));
  EXPECT_EQ(snapshot(), before);
}

INSTANTIATE_TEST_SUITE_P(Rank, LostHeaders, ::testing::Values(0u, 1u));

TEST_F(DiskFolderTest, ADamagedDataHeaderIsWrittenAnewAndNoBlockIsLost) {
  {
    const auto folder = open();
    ASSERT_TRUE(folder);
    write_block(*folder, 0, "a", 1);
  }
  overwrite(file("rank0/data"), 100, "torn");
  {
    const auto folder = open();
    ASSERT_TRUE(folder);
    EXPECT_TRUE(says(joined(folder->notes()), "header of the data file of rank 0"));
    EXPECT_EQ(keys_of(contents(*folder)), keys({"a"}));
  }
  EXPECT_TRUE(open()->notes().empty());
}

}  // namespace
}  // namespace tiercel
