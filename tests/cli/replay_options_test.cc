// SPDX-License-Identifier: Apache-2.0
#include "cli/replay_options.h"

#include <gtest/gtest.h>

#include "cli/option_sources.h"
#include "support/paths.h"
#include "support/temp_folder.h"

namespace tiercel {
namespace {

Result<ReplayOptions> read(CommandLineOptions options) {
  options.emplace_back("trace", "trace.jsonl");
  TIERCEL_TRY_ASSIGN(const OptionValues values,
                     read_option_sources(replay_option_table(), options, nullptr));
  return read_replay_options(values);
}

std::string refusal(const std::string& name, const std::string& value) {
  const auto options = read({{name, value}});
  return options ? "" : options.error().message();
}

TEST(ReplayOptions, EveryOptionReachesItsPlace) {
  const auto options = read({{"device_blocks", "1"},
                             {"host_blocks", "20"},
                             {"block_bytes", "3KiB"},
                             {"block_tokens", "128"},
                             {"ranks", "4"},
                             {"policy", "s3fifo"},
                             {"store", "memory:"},
                             {"metadata_only", "true"},
                             {"full_blocks_only", "true"},
                             {"verify", "false"},
                             {"prefault", "true"},
                             {"skip_bad_lines", "true"},
                             {"limit", "9"},
                             {"deadline", "50ms"},
                             {"patience", "2s"},
                             {"json", "out.json"}});
  ASSERT_TRUE(options.has_value()) << options.error().message();
  EXPECT_EQ(options->trace, "trace.jsonl");
  EXPECT_EQ(options->device_blocks, 1u);
  EXPECT_EQ(options->host_blocks, 20u);
  EXPECT_EQ(options->block_bytes, 3072u);
  EXPECT_EQ(options->block_tokens, 128u);
  EXPECT_EQ(options->ranks, 4u);
  EXPECT_EQ(options->policy, "s3fifo");
  EXPECT_EQ(options->store, "memory:");
  EXPECT_TRUE(options->metadata_only);
  EXPECT_TRUE(options->full_blocks_only);
  EXPECT_FALSE(options->verify);
  EXPECT_TRUE(options->prefault);
  EXPECT_TRUE(options->skip_bad_lines);
  EXPECT_EQ(options->limit, 9u);
  EXPECT_EQ(options->deadline, std::chrono::milliseconds(50));
  EXPECT_EQ(options->patience, std::chrono::seconds(2));
  EXPECT_EQ(options->json, "out.json");
}

TEST(ReplayOptions, WhatIsOutOfRangeIsRefusedWithOptionValueAndRange) {
  EXPECT_NE(refusal("block_bytes", "0").find("block_bytes is \"0\"; allowed: 64B to 1GiB"),
            std::string::npos)
      << refusal("block_bytes", "0");
  EXPECT_NE(refusal("ranks", "65").find("ranks is \"65\"; allowed: 1 to 64"), std::string::npos);
  EXPECT_NE(refusal("host_blocks", "3").find("host_blocks is \"3\"; allowed: 4 to 268435456"),
            std::string::npos);
  EXPECT_NE(refusal("policy", "lfu").find("policy is \"lfu\"; allowed: lru, s3fifo"),
            std::string::npos)
      << refusal("policy", "lfu");
  EXPECT_EQ(refusal("block_tokens", "100"),
            "block_tokens is 100; allowed: divisors of 512: 1, 2, 4, 8, 16, 32, 64, 128, 256, 512");
  EXPECT_NE(refusal("host_bloks", "100").find("did you mean \"host_blocks\""), std::string::npos)
      << refusal("host_bloks", "100");
}

// The set of keys that stands for the store then never forgets and never fails.
TEST(ReplayOptions, WithoutBytesAStoreHasNoOptionsThatWouldMatter) {
  const auto read_without_bytes = [](const std::string& store) {
    return read({{"metadata_only", "true"}, {"store", store}});
  };
  for (const std::string store :
       {"memory:", "memory:pool", "guard+memory:", "memory:?guard_failures=2",
        "guard+memory:pool?guard-failures=2&guard_backoff=1s"}) {
    EXPECT_TRUE(read_without_bytes(store).has_value()) << store;
  }
  const struct {
    std::string store, culprit;
  } kRefused[] = {
      {"memory:?bytes=1KiB", "bytes=1KiB"},
      {"guard+memory:?guard_failures=2&bytes=1KiB", "bytes=1KiB"},
      {"faulty+memory:?fault_error=1", "faulty+memory:"},
      {"faulty+memory:", "faulty+memory:"},
      {"guard+faulty+memory:", "guard+faulty+memory:"},
      {"file:///folder", "file:"},
  };
  for (const auto& [store, culprit] : kRefused) {
    const auto refused = read_without_bytes(store);
    ASSERT_FALSE(refused.has_value()) << store;
    EXPECT_EQ(refused.code(), Code::kInvalid);
    EXPECT_NE(refused.error().message().find("store is \"" + store + "\""), std::string::npos)
        << refused.error().message();
    EXPECT_NE(refused.error().message().find("\"" + culprit + "\""), std::string::npos)
        << refused.error().message();
    EXPECT_NE(refused.error().message().find("allowed: "), std::string::npos);
    EXPECT_TRUE(read({{"store", store}}).has_value()) << "only without bytes";
  }
}

TEST(ReplayOptions, TheTraceMustBeSet) {
  const auto refused = read_replay_options(replay_option_table().defaults());
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message().find("trace is not set"), std::string::npos);
}

TEST(ReplayOptions, OnlyAPartialLastIdIsLeftOut) {
  ReplayOptions options;
  TraceRequest request;
  request.input_length = 1025;
  request.id_count = 3;
  EXPECT_EQ(options.used_ids(request), 3u);
  options.full_blocks_only = true;
  EXPECT_EQ(options.used_ids(request), 2u);
  request.input_length = 1536;
  EXPECT_EQ(options.used_ids(request), 3u);
  request.input_length = 0;
  request.id_count = 0;
  EXPECT_EQ(options.used_ids(request), 0u);
}

TEST(ReplayOptions, WhatDoesNotFitIntoMemoryIsRefusedWithTheLargestThatDoes) {
  ReplayOptions options;
  options.block_bytes = 1u << 20;
  options.ranks = 2;
  options.host_blocks = 1000;
  const MemoryLimit memory{1u << 30, "cgroup limit /some/group"};
  const Status refused = check_replay_memory(options, 10, memory);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.code(), Code::kNoSpace);
  const std::string& message = refused.error().message();
  EXPECT_NE(message.find("host_blocks is 1000"), std::string::npos) << message;
  EXPECT_NE(message.find("1 GiB (cgroup limit /some/group)"), std::string::npos) << message;
  const size_t at = message.find("allowed: 4 to ");
  ASSERT_NE(at, std::string::npos) << message;
  const auto largest = static_cast<uint32_t>(std::stoul(message.substr(at + 14)));
  options.host_blocks = largest;
  EXPECT_TRUE(check_replay_memory(options, 10, memory).has_value());
  options.host_blocks = largest + 1;
  EXPECT_FALSE(check_replay_memory(options, 10, memory).has_value());
  options.metadata_only = true;
  EXPECT_TRUE(check_replay_memory(options, 10, memory).has_value());
}

TEST(ReplayOptions, DeviceBlocksThatDoNotFitAreRefused) {
  ReplayOptions options;
  options.device_blocks = 1u << 28;
  options.block_bytes = 1u << 30;
  options.ranks = 64;
  const Status refused = check_replay_memory(options, 10, {1u << 30, "available memory"});
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message().find("device_blocks is 268435456"), std::string::npos);
}

TEST(ReplayOptions, WhatPlaysNoPartInTheMemoryIsNotNamed) {
  ReplayOptions options;
  options.host_blocks = 1u << 28;
  const MemoryLimit memory{1u << 30, "available memory"};
  const auto message = [&](uint64_t longest) {
    const Status refused = check_replay_memory(options, longest, memory);
    return refused ? std::string() : refused.error().message();
  };
  options.block_bytes = 64;
  EXPECT_NE(message(10).find("host_blocks is 268435456, which takes 1."), std::string::npos);
  EXPECT_NE(message(10).find("block_bytes 64 B, each in a slot of 4 KiB, beside 640 B for the "
                             "device blocks; allowed: 4 to "),
            std::string::npos)
      << message(10);
  EXPECT_NE(message(1u << 25).find("of the longest request"), std::string::npos)
      << message(1u << 25);
  EXPECT_EQ(message(1u << 25).find("device_blocks"), std::string::npos) << message(1u << 25);
  options.block_bytes = 250u << 20;
  EXPECT_NE(message(4).find("not even the least, 4, fits into 1 GiB (available memory)"),
            std::string::npos)
      << message(4);
  options.metadata_only = true;
  EXPECT_EQ(message(10).find("block_bytes"), std::string::npos) << message(10);
  EXPECT_EQ(message(10).find("ranks"), std::string::npos) << message(10);
}

TEST(ReplayOptions, EveryOptionStandsInItsPage) {
  const std::string page = testing::read_file(testing::source_path("docs/replay.md"));
  const OptionTable table = replay_option_table();
  for (const Option& option : table.options()) {
    EXPECT_NE(page.find("`" + option_flag(option.name) + "`"), std::string::npos) << option.name;
  }
}

}  // namespace
}  // namespace tiercel
