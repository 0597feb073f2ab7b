// SPDX-License-Identifier: Apache-2.0
#include "cli/option_sources.h"

#include <gtest/gtest.h>

#include "cli/bench_options.h"
#include "cli/replay_options.h"
#include "support/temp_folder.h"

namespace tiercel {
namespace {

class OptionSources : public ::testing::Test {
 protected:
  OptionSources()
      : config_(folder_.write("tiercel.toml",
                              "host_blocks = 111\nranks = 3\nblock_bytes = \"8KiB\"\n")) {}

  Result<OptionValues> read(const CommandLineOptions& command_line,
                            std::vector<const char*> environment = {}) {
    environment.push_back(nullptr);
    return read_option_sources(replay_option_table(), command_line, environment.data());
  }

  testing::TempFolder folder_;
  std::string config_;
};

TEST_F(OptionSources, DefaultsStandWhereNothingElseDoes) {
  const auto values = read({});
  ASSERT_TRUE(values.has_value());
  EXPECT_EQ(values->get_integer("host_blocks"), 10000);
  EXPECT_EQ(values->source("host_blocks"), OptionSource::kDefault);
}

TEST_F(OptionSources, CommandLineWinsOverEnvironmentOverFileOverDefaults) {
  const auto values = read({{"config", config_}, {"host_blocks", "333"}},
                           {"TIERCEL_HOST_BLOCKS=222", "TIERCEL_RANKS=2", "OTHER=1"});
  ASSERT_TRUE(values.has_value()) << values.error().message();
  EXPECT_EQ(values->get_integer("host_blocks"), 333);
  EXPECT_EQ(values->get_integer("ranks"), 2);
  EXPECT_EQ(values->get_integer("block_bytes"), 8192);
  EXPECT_EQ(values->get_integer("block_tokens"), 512);
}

TEST_F(OptionSources, TheEnvironmentMayNameTheFile) {
  const std::string variable = "TIERCEL_CONFIG=" + config_;
  const auto values = read({}, {variable.c_str()});
  ASSERT_TRUE(values.has_value());
  EXPECT_EQ(values->get_integer("host_blocks"), 111);
}

TEST_F(OptionSources, UnknownNamesAreRefusedWithTheNearestOne) {
  const auto refused = read({}, {"TIERCEL_HOST_BLOKS=222"});
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message().find("TIERCEL_HOST_BLOKS"), std::string::npos);
  EXPECT_NE(refused.error().message().find("host_blocks"), std::string::npos);
}

TEST_F(OptionSources, VariablesOfAnotherCommandOrOfTheScriptsAreNotRefused) {
  const std::vector<const char*> environment{"TIERCEL_HOST_BLOCKS=222", "TIERCEL_RUNS=3",
                                             "TIERCEL_FUZZ_SECONDS=40", nullptr};
  for (const OptionTable& table : {replay_option_table(), bench_option_table()}) {
    const auto values = read_option_sources(table, {}, environment.data());
    EXPECT_TRUE(values.has_value()) << values.error().message();
  }
  // On the command line they are.
  const auto refused = read({{"runs", "3"}});
  EXPECT_FALSE(refused.has_value());
}

TEST_F(OptionSources, AVariableInLowerCaseIsRefusedWithANameThatExists) {
  const auto refused = read({}, {"TIERCEL_HOST_blocks=222"});
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message().find("TIERCEL_HOST_BLOCKS"), std::string::npos)
      << refused.error().message();
  const auto far = read({}, {"TIERCEL_qqqqqqqqqqqqqqq=1"});
  ASSERT_FALSE(far.has_value());
  EXPECT_NE(far.error().message().find("TIERCEL_TRACE"), std::string::npos)
      << far.error().message();
}

TEST_F(OptionSources, AFileThatNamesAFileIsRefused) {
  const std::string file = folder_.write("outer.toml", "host_blocks = 7\nconfig = \"x.toml\"\n");
  const auto refused = read({{"config", file}});
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message().find("config"), std::string::npos)
      << refused.error().message();
  EXPECT_NE(refused.error().message().find("outer.toml"), std::string::npos)
      << refused.error().message();
}

TEST_F(OptionSources, ABadValueIsRefusedWhereverItStands) {
  const std::string bad = folder_.write("bad.toml", "host_blocks = 2\n");
  for (const auto& refused :
       {read({{"host_blocks", "2"}}), read({}, {"TIERCEL_HOST_BLOCKS=2"}), read({{"config", bad}}),
        // Also where a later source would have won.
        read({{"config", bad}, {"host_blocks", "10"}})}) {
    ASSERT_FALSE(refused.has_value());
    EXPECT_NE(refused.error().message().find("host_blocks is \"2\""), std::string::npos)
        << refused.error().message();
    EXPECT_NE(refused.error().message().find("allowed: 4 to "), std::string::npos)
        << refused.error().message();
  }
}

TEST_F(OptionSources, AMissingFileIsNamed) {
  const auto refused = read({{"config", folder_.path("missing.toml")}});
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message().find("missing.toml"), std::string::npos);
}

TEST_F(OptionSources, FlagsHaveDashes) { EXPECT_EQ(option_flag("host_blocks"), "--host-blocks"); }

}  // namespace
}  // namespace tiercel
