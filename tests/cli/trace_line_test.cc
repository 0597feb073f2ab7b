// SPDX-License-Identifier: Apache-2.0
#include "cli/trace_line.h"

#include <string>

#include <gtest/gtest.h>

#include "base/random.h"

namespace tiercel {
namespace {

constexpr std::string_view kGood =
    R"({"timestamp": 27, "input_length": 1025, "output_length": 7, "hash_ids": [5, 0, 9]})";

// The message for `text`, or "" if it is read.
std::string refusal(std::string_view text) {
  TraceLine line;
  const Status status = parse_trace_line(text, &line);
  if (status) return "";
  EXPECT_EQ(status.code(), Code::kInvalid);
  EXPECT_FALSE(status.error().message().empty());
  return status.error().message();
}

std::string with(std::string_view from, std::string_view to) {
  std::string text(kGood);
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(TraceLine, AllMembersAreRead) {
  TraceLine line;
  ASSERT_TRUE(parse_trace_line(kGood, &line).has_value());
  EXPECT_EQ(line.timestamp_ms, 27u);
  EXPECT_EQ(line.input_length, 1025u);
  EXPECT_EQ(line.output_length, 7u);
  EXPECT_EQ(line.hash_ids, (std::vector<uint64_t>{5, 0, 9}));
}

TEST(TraceLine, FurtherMembersAreIgnored) {
  EXPECT_EQ(refusal(with("{", R"({"chat_id": "x", "type": [1, 2], )")), "");
}

TEST(TraceLine, ARequestWithoutTokensHasNoBlocks) {
  EXPECT_EQ(refusal(R"({"timestamp": 0, "input_length": 0, "output_length": 0, "hash_ids": []})"),
            "");
  EXPECT_EQ(refusal(R"({"timestamp": 0, "input_length": 0, "output_length": 0, "hash_ids": [1]})"),
            "hash_ids has 1 entries; allowed: exactly 0, one per 512 tokens of input_length 0");
}

TEST(TraceLine, NumbersOutsideTheirRangeAreNamedWithValueAndRange) {
  EXPECT_EQ(refusal(with("1025", "-1")),
            "input_length is -1; allowed: an integer from 0 to 16777216");
  EXPECT_EQ(refusal(with("1025", "1025.5")),
            "input_length is 1025.5; allowed: an integer from 0 to 16777216");
  EXPECT_EQ(refusal(with("1025", "\"1025\"")),
            "input_length is \"1025\"; allowed: an integer from 0 to 16777216");
  EXPECT_EQ(refusal(with("1025", "16777217")),
            "input_length is 16777217; allowed: an integer from 0 to 16777216");
  EXPECT_EQ(refusal(with(": 7", ": -7")),
            "output_length is -7; allowed: an integer from 0 to 16777216");
  EXPECT_EQ(refusal(with("27", "4000000000001")),
            "timestamp is 4000000000001; allowed: an integer from 0 to 4000000000000");
  EXPECT_EQ(refusal(with("27", "null")),
            "timestamp is null; allowed: an integer from 0 to 4000000000000");
}

TEST(TraceLine, IdsReachTo63Bits) {
  EXPECT_EQ(refusal(with("[5,", "[9223372036854775807,")), "");
  EXPECT_EQ(refusal(with("[5,", "[9223372036854775808,")),
            "hash_ids[0] is 9223372036854775808; allowed: an integer from 0 to "
            "9223372036854775807");
  EXPECT_NE(refusal(with(" 0,", " 99999999999999999999999,")).find("hash_ids[1] is "),
            std::string::npos);
  EXPECT_NE(refusal(with(" 9]", " -9]")).find("hash_ids[2] is -9; allowed: "), std::string::npos);
  EXPECT_NE(refusal(with(" 9]", " 9.0]")).find("hash_ids[2] is 9.0; allowed: "), std::string::npos);
}

TEST(TraceLine, TheNumberOfIdsMustFitTheLength) {
  EXPECT_EQ(refusal(with("5, 0, 9", "5, 0")),
            "hash_ids has 2 entries; allowed: exactly 3, one per 512 tokens of input_length 1025");
  EXPECT_EQ(refusal(with("5, 0, 9", "5, 0, 9, 1")),
            "hash_ids has 4 entries; allowed: exactly 3, one per 512 tokens of input_length 1025");
  EXPECT_EQ(refusal(with("1025", "1024")),
            "hash_ids has 3 entries; allowed: exactly 2, one per 512 tokens of input_length 1024");
  EXPECT_EQ(refusal(with("[5, 0, 9]", "5")), "hash_ids is 5; allowed: an array of integers");
}

TEST(TraceLine, MissingMembersAreNamed) {
  for (const std::string name : {"timestamp", "input_length", "output_length", "hash_ids"}) {
    EXPECT_EQ(refusal(with("\"" + name + "\"", "\"other\"")),
              "there is no \"" + name +
                  "\"; a request has timestamp, input_length, output_length and hash_ids");
  }
}

TEST(TraceLine, WhatIsNotAnObjectIsRefused) {
  EXPECT_NE(refusal("[1, 2]").find("this is [1,2]; allowed: a JSON object"), std::string::npos);
  EXPECT_NE(refusal("").find("broken JSON"), std::string::npos);
}

TEST(TraceLine, ANulByteIsNotTheEndOfALine) {
  using namespace std::string_view_literals;
  for (const std::string_view tail : {"\0"sv, "\0garbage{{{"sv, "\0\n"sv}) {
    EXPECT_EQ(refusal(std::string(kGood) + std::string(tail)),
              "broken JSON at byte 83 of the line, which is NUL; allowed: one JSON object a line");
  }
}

TEST(TraceLine, WhatIsNestedWithoutBoundIsRefusedBeforeItCostsMemory) {
  const auto nested = [](size_t depth) {
    return with("{", "{\"x\": " + std::string(depth, '[') + std::string(depth, ']') + ", ");
  };
  EXPECT_EQ(refusal(nested(31)), "");
  EXPECT_EQ(refusal(nested(32)),
            "the line nests arrays and objects 33 deep at byte 38; allowed: up to 32");
  EXPECT_NE(refusal(std::string(1u << 20, '[')).find("33 deep"), std::string::npos);
  EXPECT_NE(refusal(std::string(1u << 20, '{')).find("33 deep"), std::string::npos);
  // Not those within a string.
  EXPECT_EQ(refusal(with("{", "{\"x\": \"\\\"" + std::string(100, '[') + "\", ")), "");
}

TEST(TraceLine, ALineOfCountlessValuesIsRefusedBeforeItCostsMemory) {
  std::string many = "[0";
  for (size_t i = 0; i < kLineValuesMax; ++i) many += ",0";
  EXPECT_NE(refusal(with("{", "{\"x\": " + many + "], ")).find("more than 1000000 values"),
            std::string::npos);
}

TEST(TraceLine, ANegativeZeroIsZero) { EXPECT_EQ(refusal(with(": 7", ": -0")), ""); }

TEST(TraceLine, ANumberThatIsTooLargeIsRefusedInFewWords) {
  const std::string message = "there is a number that is too large; allowed: up to 1.8e308";
  EXPECT_EQ(refusal(with("{", "{\"x\": 1e999, ")), message);
  EXPECT_EQ(refusal(with("1025", std::string(10000, '9'))), message);
}

TEST(TraceLine, EveryTruncationIsRefused) {
  for (size_t length = 0; length < kGood.size(); ++length) {
    EXPECT_NE(refusal(kGood.substr(0, length)), "") << length;
  }
}

TEST(TraceLine, EveryFlippedBitIsReadOrRefusedInWords) {
  for (size_t bit = 0; bit < kGood.size() * 8; ++bit) {
    std::string text(kGood);
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
    TraceLine line;
    const Status status = parse_trace_line(text, &line);
    if (status) {
      EXPECT_EQ(line.hash_ids.size(), (line.input_length + 511u) / 512u) << text;
    } else {
      EXPECT_FALSE(status.error().message().empty()) << text;
    }
  }
}

}  // namespace
}  // namespace tiercel
