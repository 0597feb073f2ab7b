// SPDX-License-Identifier: Apache-2.0
#include "cli/line_reader.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "support/temp_folder.h"

namespace tiercel {
namespace {

using Outcome = LineReader::Outcome;

LineReader::Limits limits(size_t line_bytes_max, uint64_t skipped_bytes_max = 1u << 20) {
  LineReader::Limits result;
  result.line_bytes_max = line_bytes_max;
  result.skipped_bytes_max = skipped_bytes_max;
  return result;
}

// Lines of `content`; a line that was too long as "<long>".
std::vector<std::string> read_all(const std::string& content, const LineReader::Limits& limits) {
  const testing::TempFolder folder;
  auto reader = LineReader::open(folder.write("file", content), limits);
  EXPECT_TRUE(reader.has_value());
  std::vector<std::string> lines;
  while (true) {
    std::string_view line;
    const auto outcome = reader->next(&line);
    EXPECT_TRUE(outcome.has_value());
    if (!outcome || *outcome == Outcome::kEnd) return lines;
    lines.push_back(*outcome == Outcome::kTooLong ? "<long>" : std::string(line));
    EXPECT_EQ(reader->line_number(), lines.size());
  }
}

using Lines = std::vector<std::string>;

TEST(LineReader, LinesEndWithLineFeedOrWithTheFile) {
  EXPECT_EQ(read_all("a\nbb\nccc", limits(10)), (Lines{"a", "bb", "ccc"}));
  EXPECT_EQ(read_all("a\nbb\n", limits(10)), (Lines{"a", "bb"}));
  EXPECT_EQ(read_all("", limits(10)), Lines{});
  EXPECT_EQ(read_all("\n\n", limits(10)), (Lines{"", ""}));
}

TEST(LineReader, CarriageReturnBeforeTheLineFeedIsNoPartOfTheLine) {
  EXPECT_EQ(read_all("a\r\nb\r\n", limits(10)), (Lines{"a", "b"}));
  EXPECT_EQ(read_all("a\rb\r", limits(10)), (Lines{"a\rb"}));
}

TEST(LineReader, LongLinesAreSkippedAndTheNextOnesAreRead) {
  const std::string longest(10, 'x');
  EXPECT_EQ(read_all(longest + "\r\n" + longest + "y\nz\n", limits(10)),
            (Lines{longest, "<long>", "z"}));
  EXPECT_EQ(read_all(std::string(5000, 'x') + "\nz", limits(10)), (Lines{"<long>", "z"}));
  EXPECT_EQ(read_all("z\n" + std::string(5000, 'x'), limits(10)), (Lines{"z", "<long>"}));
}

TEST(LineReader, AnyContentIsSplitAsASimpleSplitDoes) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const size_t longest = random.between(1, 30);
    std::string content;
    Lines expected;
    for (uint64_t line = random.below(12); line > 0; --line) {
      const std::string text(random.below(50), 'a');
      content += text + (random.chance(0.3) ? "\r\n" : "\n");
      expected.push_back(text.size() > longest ? "<long>" : text);
    }
    EXPECT_EQ(read_all(content, limits(longest)), expected) << "seed " << seed;
  }
}

TEST(LineReader, ALineWithoutEndIsGivenUp) {
  auto reader = LineReader::open("/dev/zero", limits(1000, 100000));
  ASSERT_TRUE(reader.has_value());
  std::string_view line;
  const auto outcome = reader->next(&line);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.code(), Code::kInvalid);
  EXPECT_NE(outcome.error().message().find("/dev/zero:1: the line does not end within 100000"),
            std::string::npos)
      << outcome.error().message();
}

TEST(LineReader, MissingFilesAndFoldersAreNamed) {
  const testing::TempFolder folder;
  const auto missing = LineReader::open(folder.path("missing"));
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.code(), Code::kNotFound);
  EXPECT_NE(missing.error().message().find(folder.path("missing")), std::string::npos);
  const auto directory = LineReader::open(folder.path(""));
  ASSERT_FALSE(directory.has_value());
  EXPECT_EQ(directory.code(), Code::kInvalid);
  EXPECT_NE(directory.error().message().find("is a folder"), std::string::npos);
}

TEST(LineReader, PeekTakesNothingAway) {
  const testing::TempFolder folder;
  auto reader = LineReader::open(folder.write("file", "abcdef\n"));
  ASSERT_TRUE(reader.has_value());
  EXPECT_EQ(*reader->peek(), "abcd");
  std::string_view line;
  EXPECT_EQ(*reader->next(&line), Outcome::kLine);
  EXPECT_EQ(line, "abcdef");
  auto small = LineReader::open(folder.write("small", "a"));
  EXPECT_EQ(*small->peek(), "a");
}

}  // namespace
}  // namespace tiercel
