// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/option_table.h"
#include "base/random.h"

namespace tiercel {
namespace {

class OptionTomlTest : public ::testing::Test {
 protected:
  Status read(std::string_view text) { return table_.read_toml(values_, text, "tiercel.toml"); }
  std::string refusal(std::string_view text) {
    const Status status = read(text);
    if (status) return "accepted";
    EXPECT_EQ(status.code(), Code::kInvalid);
    return status.error().message();
  }

  const OptionTable table_ = {
      {.name = "block_tokens",
       .type = OptionType::kInteger,
       .default_value = "16",
       .minimum = 1,
       .maximum = 65536},
      {.name = "host_bytes", .type = OptionType::kBytes, .default_value = "1GiB"},
      {.name = "load_timeout", .type = OptionType::kDuration},
      {.name = "ratio", .type = OptionType::kReal},
      {.name = "verify", .type = OptionType::kBool},
      {.name = "policy", .type = OptionType::kChoice, .choices = {"lru", "s3fifo"}},
      {.name = "disk_path", .type = OptionType::kString},
  };
  OptionValues values_ = table_.defaults();
};

TEST_F(OptionTomlTest, EveryTypeIsRead) {
  ASSERT_TRUE(
      read("# a comment\n"
           "block_tokens = 1_024\n"
           "host_bytes = \"8GiB\"\n"
           "load_timeout = \"50ms\"\n"
           "ratio = 0.25\n"
           "verify = false\n"
           "policy = \"s3fifo\"\n"
           "disk_path = '/var/lib/d\xC3\xA9p\xC3\xB4t'\n"));
  EXPECT_EQ(values_.get_integer("block_tokens"), 1024);
  EXPECT_EQ(values_.get_integer("host_bytes"), int64_t{8} << 30);
  EXPECT_EQ(values_.get_duration("load_timeout"), std::chrono::milliseconds(50));
  EXPECT_EQ(values_.get_real("ratio"), 0.25);
  EXPECT_FALSE(values_.get_bool("verify"));
  EXPECT_EQ(values_.get_string("policy"), "s3fifo");
  EXPECT_EQ(values_.get_string("disk_path"), "/var/lib/d\xC3\xA9p\xC3\xB4t");
  EXPECT_EQ(values_.source("policy"), OptionSource::kFile);
}

TEST_F(OptionTomlTest, PlainNumbersAreBytesAndRealNumbers) {
  ASSERT_TRUE(read("host_bytes = 4096\nratio = 1\nload_timeout = 0\n"));
  EXPECT_EQ(values_.get_integer("host_bytes"), 4096);
  EXPECT_EQ(values_.get_real("ratio"), 1.0);
  EXPECT_EQ(values_.get_duration("load_timeout"), Duration(0));
}

TEST_F(OptionTomlTest, SectionJoinsWithItsKeys) {
  ASSERT_TRUE(read("policy = \"lru\"\n[host]\nbytes = \"2GiB\"\n[disk]\npath = \"x\"\n"));
  EXPECT_EQ(values_.get_integer("host_bytes"), int64_t{2} << 30);
  EXPECT_EQ(values_.get_string("disk_path"), "x");
}

TEST_F(OptionTomlTest, HyphensStandForUnderscores) {
  ASSERT_TRUE(read("block-tokens = 32\n"));
  EXPECT_EQ(values_.get_integer("block_tokens"), 32);
}

TEST_F(OptionTomlTest, DeeperSectionIsRefusedWithItsLine) {
  EXPECT_EQ(refusal("[a]\n[a.b]\nc = 1\n"),
            "tiercel.toml:2: section \"a_b\" is nested; allowed: one level, [section] key = value");
}

TEST_F(OptionTomlTest, SyntaxErrorNamesItsLine) {
  for (std::string_view text : {"block_tokens = 1\nverify = true\nratio = = 2\n",
                                "block_tokens = 1\nverify = true\nblock_tokens = 2\n",
                                "block_tokens = 1\nverify = true\ndisk_path = \"\xff\"\n"}) {
    EXPECT_EQ(refusal(text).find("tiercel.toml:3: not valid TOML: "), 0u) << refusal(text);
  }
  EXPECT_EQ(values_.get_integer("block_tokens"), 16);
}

TEST_F(OptionTomlTest, UnknownNameIsRefusedWithItsLineAndTheNearest) {
  EXPECT_EQ(refusal("\n\nhost_byts = \"1GiB\"\n"),
            "tiercel.toml:3: unknown option \"host_byts\"; did you mean \"host_bytes\"?");
  EXPECT_EQ(refusal("[host]\nbyts = \"1GiB\"\n"),
            "tiercel.toml:2: unknown option \"host_byts\"; did you mean \"host_bytes\"?");
}

TEST_F(OptionTomlTest, BadValueIsRefusedWithItsLine) {
  EXPECT_EQ(refusal("verify = true\nblock_tokens = 0\n"),
            "tiercel.toml:2: block_tokens is \"0\"; allowed: 1 to 65536");
  EXPECT_NE(refusal("load_timeout = 5\n").find("no unit"), std::string::npos);
  EXPECT_NE(refusal("ratio = nan\n"), "accepted");
  EXPECT_NE(refusal("ratio = inf\n"), "accepted");
}

TEST_F(OptionTomlTest, WrongTypeIsRefusedWithWhatItIs) {
  EXPECT_EQ(refusal("block_tokens = 1.5\n"),
            "tiercel.toml:1: block_tokens is 1.5; allowed: 1 to 65536");
  EXPECT_EQ(refusal("block_tokens = true\n"),
            "tiercel.toml:1: block_tokens is true; allowed: 1 to 65536");
  EXPECT_EQ(refusal("verify = 1\n"),
            "tiercel.toml:1: verify is 1; allowed: true, false (also on, off, yes, no, 1, 0)");
  EXPECT_EQ(refusal("disk_path = 5\n"),
            "tiercel.toml:1: disk_path is 5; allowed: text that is not empty, in quotation marks");
  EXPECT_EQ(refusal("policy = [\"lru\"]\n"),
            "tiercel.toml:1: policy is an array; allowed: lru, s3fifo, in quotation marks");
  EXPECT_EQ(refusal("disk_path = 2026-01-01\n"),
            "tiercel.toml:1: disk_path is a date or time; allowed: text that is not empty, in "
            "quotation marks");
  EXPECT_NE(refusal("policy = { a = 1 }\n").find("unknown option \"policy_a\""), std::string::npos);
}

TEST_F(OptionTomlTest, FirstMistakeOfTheFileIsReported) {
  EXPECT_EQ(refusal("verify = 5\nblock_tokens = 0\n").find("tiercel.toml:1: verify"), 0u);
}

TEST_F(OptionTomlTest, SameOptionBySectionAndByNameIsRefused) {
  EXPECT_EQ(refusal("host_bytes = 4096\n[host]\nbytes = 8192\n"),
            "tiercel.toml:3: host_bytes is set a second time, after line 1; leave one");
}

TEST_F(OptionTomlTest, NothingChangesAfterAnError) {
  EXPECT_FALSE(read("block_tokens = 99\nverify = 5\n"));
  EXPECT_EQ(values_.get_integer("block_tokens"), 16);
}

TEST_F(OptionTomlTest, HigherSourceStands) {
  ASSERT_TRUE(table_.set(values_, "block_tokens", "7", OptionSource::kEnvironment, "x"));
  ASSERT_TRUE(read("block_tokens = 99\n"));
  EXPECT_EQ(values_.get_integer("block_tokens"), 7);
}

TEST_F(OptionTomlTest, EmptyTextSetsNothing) {
  ASSERT_TRUE(read(""));
  EXPECT_EQ(values_.source("block_tokens"), OptionSource::kDefault);
}

// Truncations and flips of valid text: read or refused, and a refusal names the file and a line.
TEST_F(OptionTomlTest, DamagedTextIsReadOrRefusedWithALine) {
  const std::string text = "block_tokens = 32\n[host]\nbytes = \"2GiB\"\n[disk]\npath = \"x\"\n";
  const auto check = [&](const std::string& damaged) {
    OptionValues values = table_.defaults();
    const Status status = table_.read_toml(values, damaged, "t");
    if (status) return;
    EXPECT_EQ(status.code(), Code::kInvalid);
    EXPECT_TRUE(status.error().message().starts_with("t:")) << status.error().message();
    EXPECT_EQ(values.get_integer("block_tokens"), 16);
  };
  for (size_t length = 0; length < text.size(); ++length) check(text.substr(0, length));
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string damaged = text;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    check(damaged);
  }
  Random random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string noise(random.below(40), '\0');
    for (char& letter : noise) letter = static_cast<char>(random.below(256));
    check(noise);
  }
}

class OptionFileTest : public OptionTomlTest {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "option_toml_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& text) {
    const std::string path = folder_ / "tiercel.toml";
    std::ofstream(path) << text;
    return path;
  }

  std::filesystem::path folder_;
};

TEST_F(OptionFileTest, FileIsReadAndNamedInMessages) {
  const std::string good = write("block_tokens = 64\n");
  ASSERT_TRUE(table_.read_file(values_, good));
  EXPECT_EQ(values_.get_integer("block_tokens"), 64);
  const std::string bad = write("\nblock_tokens = 0\n");
  const Status status = table_.read_file(values_, bad);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message(), bad + ":2: block_tokens is \"0\"; allowed: 1 to 65536");
}

TEST_F(OptionFileTest, MissingFileIsNotFound) {
  const Status status = table_.read_file(values_, (folder_ / "none.toml").string());
  ASSERT_EQ(status.code(), Code::kNotFound);
  EXPECT_NE(status.error().message().find("none.toml"), std::string::npos);
}

TEST_F(OptionFileTest, FolderAndHugeFileAreRefused) {
  EXPECT_EQ(table_.read_file(values_, folder_.string()).code(), Code::kInvalid);
  const std::string huge = write(std::string((1 << 20) + 1, '\n'));
  const Status status = table_.read_file(values_, huge);
  ASSERT_EQ(status.code(), Code::kInvalid);
  EXPECT_NE(status.error().message().find("too large"), std::string::npos);
  EXPECT_TRUE(table_.read_file(values_, write(std::string(1 << 20, '\n'))));
}

}  // namespace
}  // namespace tiercel
