// SPDX-License-Identifier: Apache-2.0
#include "base/option_table.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace tiercel {
namespace {

using std::chrono::milliseconds;

OptionTable test_table() {
  return {
      {.name = "block_tokens",
       .type = OptionType::kInteger,
       .help = "tokens of a block",
       .default_value = "16",
       .minimum = 1,
       .maximum = 65536},
      {.name = "host_bytes",
       .type = OptionType::kBytes,
       .help = "size of the host tier",
       .default_value = "1GiB",
       .minimum = 4096,
       .maximum = 0x1p40},
      {.name = "load_timeout",
       .type = OptionType::kDuration,
       .help = "longest load",
       .default_value = "50ms",
       .minimum = 0.001,
       .maximum = 60},
      {.name = "ratio",
       .type = OptionType::kReal,
       .help = "a ratio",
       .default_value = "0.5",
       .minimum = 0,
       .maximum = 1},
      {.name = "verify", .type = OptionType::kBool, .help = "verify", .default_value = "true"},
      {.name = "policy",
       .type = OptionType::kChoice,
       .help = "eviction policy",
       .default_value = "lru",
       .choices = {"lru", "s3fifo"}},
      {.name = "disk_path", .type = OptionType::kString, .help = "folder of the disk tier"},
  };
}

class OptionTableTest : public ::testing::Test {
 protected:
  Status set(std::string_view name, std::string_view text) {
    return table_.set(values_, name, text, OptionSource::kCommandLine, "--here");
  }
  std::string refusal(std::string_view name, std::string_view text) {
    const Status status = set(name, text);
    if (status) return "accepted";
    EXPECT_EQ(status.code(), Code::kInvalid);
    return status.error().message();
  }

  const OptionTable table_ = test_table();
  OptionValues values_ = table_.defaults();
};

TEST_F(OptionTableTest, DefaultsAreReadFromTheirText) {
  EXPECT_EQ(values_.get_integer("block_tokens"), 16);
  EXPECT_EQ(values_.get_integer("host_bytes"), int64_t{1} << 30);
  EXPECT_EQ(values_.get_duration("load_timeout"), milliseconds(50));
  EXPECT_EQ(values_.get_real("ratio"), 0.5);
  EXPECT_TRUE(values_.get_bool("verify"));
  EXPECT_EQ(values_.get_string("policy"), "lru");
  EXPECT_FALSE(values_.is_set("disk_path"));
  EXPECT_TRUE(values_.is_set("policy"));
  EXPECT_EQ(values_.source("policy"), OptionSource::kDefault);
}

TEST_F(OptionTableTest, EveryTypeIsSetFromText) {
  ASSERT_TRUE(set("block_tokens", "1_024"));
  EXPECT_EQ(values_.get_integer("block_tokens"), 1024);
  ASSERT_TRUE(set("host-bytes", "8GiB"));
  EXPECT_EQ(values_.get_integer("host_bytes"), int64_t{8} << 30);
  ASSERT_TRUE(set("load_timeout", "1.5s"));
  EXPECT_EQ(values_.get_duration("load_timeout"), milliseconds(1500));
  ASSERT_TRUE(set("ratio", "2.5e-1"));
  EXPECT_EQ(values_.get_real("ratio"), 0.25);
  ASSERT_TRUE(set("policy", "s3fifo"));
  EXPECT_EQ(values_.get_string("policy"), "s3fifo");
  ASSERT_TRUE(set("disk_path", "/d\xC3\xA9p\xC3\xB4t"));
  EXPECT_EQ(values_.get_string("disk_path"), "/d\xC3\xA9p\xC3\xB4t");
  EXPECT_EQ(values_.source("disk_path"), OptionSource::kCommandLine);
}

TEST_F(OptionTableTest, BoolHasManyWords) {
  for (std::string_view word : {"false", "off", "no", "0", "False", "OFF"}) {
    ASSERT_TRUE(set("verify", "true"));
    ASSERT_TRUE(set("verify", word)) << word;
    EXPECT_FALSE(values_.get_bool("verify")) << word;
  }
  for (std::string_view word : {"true", "on", "yes", "1", "True", "YES"}) {
    ASSERT_TRUE(set("verify", "false"));
    ASSERT_TRUE(set("verify", word)) << word;
    EXPECT_TRUE(values_.get_bool("verify")) << word;
  }
  EXPECT_EQ(refusal("verify", "maybe"),
            "--here: verify is \"maybe\"; allowed: true, false (also on, off, yes, no, 1, 0)");
  EXPECT_EQ(refusal("verify", ""),
            "--here: verify is \"\"; allowed: true, false (also on, off, yes, no, 1, 0)");
}

TEST_F(OptionTableTest, ValueOutOfRangeIsRefusedWithNameValueAndRange) {
  EXPECT_EQ(refusal("block_tokens", "0"), "--here: block_tokens is \"0\"; allowed: 1 to 65536");
  EXPECT_EQ(refusal("block_tokens", "65537"),
            "--here: block_tokens is \"65537\"; allowed: 1 to 65536");
  EXPECT_EQ(refusal("host_bytes", "4095"), "--here: host_bytes is \"4095\"; allowed: 4KiB to 1TiB");
  EXPECT_EQ(refusal("host_bytes", "2TiB"), "--here: host_bytes is \"2TiB\"; allowed: 4KiB to 1TiB");
  EXPECT_EQ(refusal("load_timeout", "999us"),
            "--here: load_timeout is \"999us\"; allowed: 1ms to 1min");
  EXPECT_EQ(refusal("load_timeout", "61s"),
            "--here: load_timeout is \"61s\"; allowed: 1ms to 1min");
  EXPECT_EQ(refusal("ratio", "1.01"), "--here: ratio is \"1.01\"; allowed: 0 to 1");
  EXPECT_EQ(refusal("ratio", "-0.5"), "--here: ratio is \"-0.5\"; allowed: 0 to 1");
  EXPECT_EQ(refusal("policy", "fifo"), "--here: policy is \"fifo\"; allowed: lru, s3fifo");
}

TEST_F(OptionTableTest, BothEndsOfARangeAreAllowed) {
  for (std::string_view text : {"1", "65536"}) EXPECT_TRUE(set("block_tokens", text));
  for (std::string_view text : {"4KiB", "1TiB"}) EXPECT_TRUE(set("host_bytes", text));
  for (std::string_view text : {"1ms", "60s", "1min"}) EXPECT_TRUE(set("load_timeout", text));
  for (std::string_view text : {"0", "1", "1.0"}) EXPECT_TRUE(set("ratio", text));
}

TEST_F(OptionTableTest, TextThatIsNoValueIsRefusedAndChangesNothing) {
  for (std::string_view text : {"", "x", "1.5", "1 ", " 1", "+1", "0x1", "1__0", "_1", "1_", "-_1",
                                "99999999999999999999", "1e3"}) {
    EXPECT_NE(refusal("block_tokens", text), "accepted") << text;
  }
  for (std::string_view text : {"", "x", "nan", "inf", "-inf", "1e999", "0.5x", "0,5", " 0.5"}) {
    EXPECT_NE(refusal("ratio", text), "accepted") << text;
  }
  EXPECT_EQ(refusal("host_bytes", "12XB")
                .find("--here: host_bytes is wrong: \"12XB\" is not a size "
                      "(unknown unit \"XB\")"),
            0u);
  EXPECT_TRUE(refusal("host_bytes", "12XB").ends_with("; allowed: 4KiB to 1TiB"));
  EXPECT_TRUE(refusal("load_timeout", "5").ends_with("; allowed: 1ms to 1min"));
  EXPECT_EQ(values_.get_integer("block_tokens"), 16);
  EXPECT_EQ(values_.get_integer("host_bytes"), int64_t{1} << 30);
  EXPECT_EQ(values_.get_real("ratio"), 0.5);
}

TEST_F(OptionTableTest, SizeBeyondSignedIntegersIsRefused) {
  const OptionTable table = {{.name = "size", .type = OptionType::kBytes}};
  OptionValues values = table.defaults();
  EXPECT_TRUE(table.set(values, "size", "9223372036854775807", OptionSource::kFile, "x"));
  EXPECT_EQ(values.get_integer("size"), INT64_MAX);
  EXPECT_FALSE(table.set(values, "size", "9223372036854775808", OptionSource::kFile, "x"));
}

TEST_F(OptionTableTest, IntegersOfAllSizesAreExact) {
  const OptionTable table = {{.name = "n", .type = OptionType::kInteger},
                             {.name = "top", .type = OptionType::kInteger, .maximum = 0x1p53}};
  OptionValues values = table.defaults();
  for (std::string_view text : {"-9223372036854775808", "9223372036854775807", "-1", "0"}) {
    ASSERT_TRUE(table.set(values, "n", text, OptionSource::kFile, "x")) << text;
    EXPECT_EQ(std::to_string(values.get_integer("n")), text);
  }
  EXPECT_FALSE(table.set(values, "n", "9223372036854775808", OptionSource::kFile, "x"));
  EXPECT_TRUE(table.set(values, "top", "9007199254740992", OptionSource::kFile, "x"));
  EXPECT_FALSE(table.set(values, "top", "9007199254740993", OptionSource::kFile, "x"));
}

TEST_F(OptionTableTest, UnknownNameIsRefusedWithTheNearest) {
  EXPECT_EQ(refusal("host_byts", "1GiB"),
            "--here: unknown option \"host_byts\"; did you mean \"host_bytes\"?");
  EXPECT_EQ(refusal("polcy", "lru"), "--here: unknown option \"polcy\"; did you mean \"policy\"?");
  EXPECT_EQ(refusal("nonsense", "1"),
            "--here: unknown option \"nonsense\"; known: block_tokens, host_bytes, load_timeout, "
            "ratio, verify, policy, disk_path");
  EXPECT_NE(refusal("", "1"), "accepted");
  EXPECT_NE(refusal("HOST_BYTES", "1GiB"), "accepted");
}

TEST_F(OptionTableTest, HigherSourceWinsInWhateverOrderTheyAreRead) {
  const std::vector<OptionSource> sources = {OptionSource::kFile, OptionSource::kEnvironment,
                                             OptionSource::kCommandLine};
  const std::vector<std::string_view> texts = {"100", "200", "300"};
  std::vector<size_t> order = {0, 1, 2};
  do {
    OptionValues values = table_.defaults();
    for (size_t i : order) {
      ASSERT_TRUE(table_.set(values, "block_tokens", texts[i], sources[i], "x"));
    }
    EXPECT_EQ(values.get_integer("block_tokens"), 300);
    EXPECT_EQ(values.source("block_tokens"), OptionSource::kCommandLine);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(OptionTableTest, LaterSettingOfTheSameSourceWins) {
  ASSERT_TRUE(set("block_tokens", "1"));
  ASSERT_TRUE(set("block_tokens", "2"));
  EXPECT_EQ(values_.get_integer("block_tokens"), 2);
}

TEST_F(OptionTableTest, TextOfALowerSourceIsCheckedAllTheSame) {
  ASSERT_TRUE(set("block_tokens", "1"));
  EXPECT_FALSE(table_.set(values_, "block_tokens", "no", OptionSource::kFile, "x"));
}

TEST_F(OptionTableTest, EnvironmentIsReadByPrefix) {
  const char* environment[] = {"PATH=/bin",
                               "TIERCEL_HOST_BYTES=2GiB",
                               "TIERCEL_POLICY=s3fifo",
                               "TIERCELX=1",
                               "TIERCEL_DISK_PATH=/a=b",
                               "NOEQUALS",
                               "=TIERCEL_POLICY",
                               nullptr};
  ASSERT_TRUE(table_.read_environment(values_, environment, "TIERCEL_"));
  EXPECT_EQ(values_.get_integer("host_bytes"), int64_t{2} << 30);
  EXPECT_EQ(values_.get_string("policy"), "s3fifo");
  EXPECT_EQ(values_.get_string("disk_path"), "/a=b");
  EXPECT_EQ(values_.source("host_bytes"), OptionSource::kEnvironment);
  EXPECT_EQ(values_.source("ratio"), OptionSource::kDefault);
}

TEST_F(OptionTableTest, EnvironmentRefusesUnknownNamesAndBadValuesAndThenChangesNothing) {
  const auto refuse = [&](const char* variable) {
    const char* environment[] = {"TIERCEL_BLOCK_TOKENS=7", variable, nullptr};
    const Status status = table_.read_environment(values_, environment, "TIERCEL_");
    EXPECT_EQ(values_.get_integer("block_tokens"), 16);
    return status ? "accepted" : status.error().message();
  };
  EXPECT_EQ(refuse("TIERCEL_HOST_BYTS=1GiB"),
            "TIERCEL_HOST_BYTS: unknown option \"host_byts\"; did you mean \"host_bytes\"?");
  EXPECT_EQ(refuse("TIERCEL_POLICY=fifo"),
            "TIERCEL_POLICY: policy is \"fifo\"; allowed: lru, s3fifo");
  EXPECT_NE(refuse("TIERCEL_host_bytes=1GiB").find("upper-case, such as TIERCEL_HOST_BYTES"),
            std::string::npos);
  EXPECT_NE(refuse("TIERCEL_polcy=lru").find("such as TIERCEL_POLICY"), std::string::npos);
  EXPECT_NE(refuse("TIERCEL_=1"), "accepted");
  EXPECT_NE(refuse("TIERCEL_\xff\n=1").find("TIERCEL_\\xff\\x0a: "), std::string::npos);
}

TEST_F(OptionTableTest, VariablesOfOthersArePassedOverUnlessTheTableHasThem) {
  const std::vector<std::string> others{"runs", "policy"};
  const char* environment[] = {"TIERCEL_RUNS=7", "TIERCEL_POLICY=s3fifo", nullptr};
  EXPECT_FALSE(table_.read_environment(values_, environment, "TIERCEL_"));
  ASSERT_TRUE(table_.read_environment(values_, environment, "TIERCEL_", others));
  EXPECT_EQ(values_.get_string("policy"), "s3fifo");
  const char* unknown[] = {"TIERCEL_RUN=7", nullptr};
  EXPECT_FALSE(table_.read_environment(values_, unknown, "TIERCEL_", others));
}

TEST_F(OptionTableTest, EmptyTextIsRefused) {
  EXPECT_EQ(refusal("disk_path", ""), "--here: disk_path is \"\"; allowed: text that is not empty");
}

TEST_F(OptionTableTest, APlaceWithoutNameIsLeftOut) {
  const Status status = table_.set(values_, "policy", "fifo", OptionSource::kCommandLine, "");
  EXPECT_EQ(status.error().message(), "policy is \"fifo\"; allowed: lru, s3fifo");
}

TEST_F(OptionTableTest, NoEnvironmentIsAnEmptyOne) {
  EXPECT_TRUE(table_.read_environment(values_, nullptr, "TIERCEL_"));
}

TEST_F(OptionTableTest, AllowedTextNamesWhatABoundLeavesOpen) {
  const auto text = [](OptionType type, std::optional<double> minimum,
                       std::optional<double> maximum) {
    return OptionTable::allowed_text(
        {.name = "x", .type = type, .minimum = minimum, .maximum = maximum});
  };
  EXPECT_EQ(text(OptionType::kInteger, 1, std::nullopt), "at least 1");
  EXPECT_EQ(text(OptionType::kBytes, std::nullopt, 65536), "at most 64KiB");
  EXPECT_EQ(text(OptionType::kDuration, 0, 3600), "0s to 1h");
  EXPECT_EQ(text(OptionType::kReal, 0.25, std::nullopt), "at least 0.25");
  EXPECT_EQ(text(OptionType::kInteger, -1e15, 1e15), "-1000000000000000 to 1000000000000000");
  EXPECT_EQ(text(OptionType::kInteger, std::nullopt, std::nullopt), "a whole number");
  EXPECT_EQ(text(OptionType::kString, std::nullopt, std::nullopt), "text that is not empty");
}

TEST_F(OptionTableTest, FindKnowsExactlyTheNamesOfTheTable) {
  ASSERT_NE(table_.find("policy"), nullptr);
  EXPECT_EQ(table_.find("policy")->help, "eviction policy");
  EXPECT_EQ(table_.find("polic"), nullptr);
  EXPECT_EQ(table_.options().size(), 7u);
}

using OptionTableDeathTest = OptionTableTest;

TEST_F(OptionTableDeathTest, MalformedTablesAndWrongAccessAssert) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  OptionTable table = test_table();
  EXPECT_DEATH(table.add({.name = "policy"}), "once");
  EXPECT_DEATH(table.add({.name = "Upper"}), "snake_case");
  EXPECT_DEATH(
      table.add({.name = "n", .type = OptionType::kInteger, .default_value = "0", .minimum = 1}),
      "default");
  EXPECT_DEATH(table.add({.name = "c", .type = OptionType::kChoice}), "choices");
  EXPECT_DEATH(values_.get_bool("policy"), "own type");
  EXPECT_DEATH(values_.get_bool("no_such"), "in the table");
  EXPECT_DEATH(values_.get_string("disk_path"), "has a value");
}

}  // namespace
}  // namespace tiercel
