// SPDX-License-Identifier: Apache-2.0
#include "base/quantity.h"

#include <limits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"

namespace tiercel {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr uint64_t kKib = 1024;

void expect_refused(const Error& error, std::string_view text, std::string_view reason) {
  EXPECT_EQ(error.code(), Code::kInvalid) << text;
  EXPECT_NE(error.message().find(reason), std::string::npos) << error.message();
}

TEST(ParseBytes, EveryUnit) {
  const std::vector<std::pair<std::string_view, uint64_t>> cases = {
      {"0", 0},
      {"4096", 4096},
      {"7B", 7},
      {"3KB", 3'000},
      {"3MB", 3'000'000},
      {"3GB", 3'000'000'000},
      {"3TB", 3'000'000'000'000},
      {"3KiB", 3 * kKib},
      {"3MiB", 3 * kKib * kKib},
      {"3GiB", 3 * kKib * kKib * kKib},
      {"3TiB", 3 * kKib * kKib * kKib * kKib},
      {"64 KiB", 64 * kKib},
      {"1_000_000", 1'000'000},
      {"0064", 64},
      {"1.5GB", 1'500'000'000},
      {"1.5GiB", 1'610'612'736},
      {"0.1KiB", 102},
      {"1.999999999KB", 1999},
      {"0.0TiB", 0},
      {"18446744073709551615", UINT64_MAX},
      {"16777215TiB", uint64_t{16777215} << 40},
  };
  for (const auto& [text, bytes] : cases) {
    const Result<uint64_t> result = parse_bytes(text);
    ASSERT_TRUE(result.has_value()) << text << ": " << result.error().message();
    EXPECT_EQ(*result, bytes) << text;
  }
}

TEST(ParseBytes, WhatIsNoSizeIsRefusedWithTheReason) {
  const std::vector<std::pair<std::string_view, std::string_view>> cases = {
      {"", "empty"},
      {" ", "no digit"},
      {" 5", "no digit"},
      {"-1", "negative"},
      {"-1GiB", "negative"},
      {"+1", "no digit"},
      {"GiB", "no digit"},
      {".5GiB", "no digit"},
      {"_1", "no digit"},
      {"1_", "unknown unit \"_\""},
      {"1__0", "unknown unit \"__0\""},
      {"1.GiB", "no digit follows the point"},
      {"1.5", "no part of the smallest unit"},
      {"1.5B", "no part of the smallest unit"},
      {"1.0000000000GiB", "more than 9 digits"},
      {"1.5.5GiB", "unknown unit"},
      {"12XB", "unknown unit \"XB\""},
      {"12gib", "unknown unit \"gib\""},
      {"12K", "unknown unit \"K\""},
      {"12ms", "unknown unit \"ms\""},
      {"12 ", "unknown unit"},
      {"12  GiB", "unknown unit"},
      {"12GiB ", "unknown unit"},
      {"12\nGiB", "unknown unit \"\\x0aGiB\""},
      {"12GiB12", "unknown unit"},
      {"1e3", "unknown unit"},
      {"0x10", "unknown unit"},
      {"\xD9\xA1\xD9\xA2", "no digit"},
      {"1\xC2\xB5", "unknown unit \"\\xc2\\xb5\""},
      {"18446744073709551616", "too large"},
      {"99999999999999999999999999999999999999999999999999", "too large"},
      {"16777216TiB", "too large"},
      {"16777215.999999999999TiB", "more than 9 digits"},
      {"18446744.1TB", "too large"},
  };
  for (const auto& [text, reason] : cases) {
    const Result<uint64_t> result = parse_bytes(text);
    ASSERT_FALSE(result.has_value()) << text << " became " << *result;
    expect_refused(result.error(), text, reason);
    EXPECT_NE(result.error().message().find("units are B KB MB GB TB KiB MiB GiB TiB"),
              std::string::npos);
  }
  EXPECT_FALSE(parse_bytes(std::string_view("1\0B", 3)).has_value());
}

TEST(ParseDuration, EveryUnit) {
  const std::vector<std::pair<std::string_view, Duration>> cases = {
      {"0", Duration(0)},
      {"0.0", Duration(0)},
      {"0ms", Duration(0)},
      {"7ns", nanoseconds(7)},
      {"200us", microseconds(200)},
      {"50ms", milliseconds(50)},
      {"1.5s", milliseconds(1500)},
      {"2min", minutes(2)},
      {"1h", hours(1)},
      {"0.5h", minutes(30)},
      {"1 s", seconds(1)},
      {"1_000ms", seconds(1)},
      {"0.0015us", nanoseconds(1)},
      {"9223372036854775807ns", Duration::max()},
      {"2562047h", hours(2562047)},
  };
  for (const auto& [text, duration] : cases) {
    const Result<Duration> result = parse_duration(text);
    ASSERT_TRUE(result.has_value()) << text << ": " << result.error().message();
    EXPECT_EQ(*result, duration) << text;
  }
}

TEST(ParseDuration, WhatIsNoDurationIsRefusedWithTheReason) {
  const std::vector<std::pair<std::string_view, std::string_view>> cases = {
      {"", "empty"},
      {"5", "no unit"},
      {"0.5", "no unit"},
      {"-5ms", "negative"},
      {"-0", "negative"},
      {"ms", "no digit"},
      {"5MS", "unknown unit \"MS\""},
      {"5m", "unknown unit \"m\""},
      {"5KiB", "unknown unit"},
      {"5\xC2\xB5s", "unknown unit"},
      {"1.5ns", "no part of the smallest unit"},
      {"9223372036854775808ns", "too large"},
      {"2562048h", "too large"},
      {"99999999999999999999h", "too large"},
      {"1h30min", "unknown unit"},
  };
  for (const auto& [text, reason] : cases) {
    const Result<Duration> result = parse_duration(text);
    ASSERT_FALSE(result.has_value()) << text;
    expect_refused(result.error(), text, reason);
    EXPECT_NE(result.error().message().find("units are ns us ms s min h"), std::string::npos);
  }
}

TEST(FormatBytes, LargestUnitWithTwoPlaces) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1000), "1000 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(64 * kKib), "64 KiB");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(1'610'612'736), "1.5 GiB");
  EXPECT_EQ(format_bytes(1'234'567), "1.18 MiB");
  EXPECT_EQ(format_bytes(1034), "1.01 KiB");
  EXPECT_EQ(format_bytes(kKib * kKib - 1), "1 MiB");
  EXPECT_EQ(format_bytes(UINT64_MAX), "16777216 TiB");
}

TEST(FormatDuration, LargestUnitWithTwoPlaces) {
  EXPECT_EQ(format_duration(Duration(0)), "0 s");
  EXPECT_EQ(format_duration(nanoseconds(999)), "999 ns");
  EXPECT_EQ(format_duration(microseconds(200)), "200 us");
  EXPECT_EQ(format_duration(milliseconds(50)), "50 ms");
  EXPECT_EQ(format_duration(milliseconds(1500)), "1.5 s");
  EXPECT_EQ(format_duration(seconds(90)), "1.5 min");
  EXPECT_EQ(format_duration(hours(48)), "48 h");
  EXPECT_EQ(format_duration(nanoseconds(999'999'999)), "1 s");
  EXPECT_EQ(format_duration(milliseconds(-1250)), "-1.25 s");
  EXPECT_EQ(format_duration(Duration::min()), "-2562047.79 h");
}

TEST(ExactText, IsInTheLargestUnitThatDivides) {
  EXPECT_EQ(exact_bytes(0), "0B");
  EXPECT_EQ(exact_bytes(4097), "4097B");
  EXPECT_EQ(exact_bytes(64 * kKib), "64KiB");
  EXPECT_EQ(exact_bytes(kKib * kKib * kKib * kKib), "1TiB");
  // Whichever unit makes it shorter.
  EXPECT_EQ(exact_bytes(1'000'000'000'000), "1TB");
  EXPECT_EQ(exact_bytes(512'000), "500KiB");
  EXPECT_EQ(exact_bytes(UINT64_MAX), "18446744073709551615B");
  EXPECT_EQ(exact_duration(Duration(0)), "0s");
  EXPECT_EQ(exact_duration(seconds(90)), "90s");
  EXPECT_EQ(exact_duration(minutes(2)), "2min");
  EXPECT_EQ(exact_duration(milliseconds(1500)), "1500ms");
}

TEST(ExactText, ParsesBackToTheSameValue) {
  Random random(1);
  for (int i = 0; i < 20'000; ++i) {
    // Of every magnitude, and often a multiple of many units.
    const uint64_t bytes = (random.next() >> random.below(64)) << random.below(30);
    EXPECT_EQ(parse_bytes(exact_bytes(bytes)).value(), bytes);
    const Duration duration(static_cast<int64_t>(random.next() >> (1 + random.below(63))));
    EXPECT_EQ(parse_duration(exact_duration(duration)).value(), duration);
  }
}

TEST(FormatBytes, ParsesBackToWithinOnePercent) {
  Random random(2);
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t bytes = random.next() >> (1 + random.below(63));
    const uint64_t back = parse_bytes(format_bytes(bytes)).value();
    const uint64_t difference = back > bytes ? back - bytes : bytes - back;
    EXPECT_LE(difference, bytes / 100) << bytes;
  }
}

TEST(ParseBytes, RandomTextNeverCrashesAndAlwaysNamesItself) {
  Random random(3);
  const std::string_view letters = "0123456789._ -+BKMGTikmsunh\xC2\xB5\n";
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (uint64_t length = random.below(12); length > 0; --length) {
      text.push_back(letters[random.below(letters.size())]);
    }
    if (const auto bytes = parse_bytes(text); !bytes) {
      EXPECT_TRUE(bytes.error().message().starts_with(quoted_text(text)));
    }
    if (const auto duration = parse_duration(text); duration) {
      EXPECT_GE(duration->count(), 0);
    }
  }
}

TEST(QuotedPath, EscapesControlCharactersAndKeepsLongNamesWhole) {
  const std::string name(1000, 'x');
  EXPECT_EQ(quoted_path(name), "\"" + name + "\"");
  EXPECT_EQ(escaped_path("a\x1b[31m\nb"), "a\\x1b[31m\\x0ab");
}

TEST(QuotedText, EscapesWhatIsNotPrintableAscii) {
  EXPECT_EQ(quoted_text("plain text"), "\"plain text\"");
  EXPECT_EQ(quoted_text("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(quoted_text("\n\x7f\xff"), R"("\x0a\x7f\xff")");
  EXPECT_EQ(quoted_text(std::string(64, 'x')).size(), 66u);
  EXPECT_EQ(quoted_text(std::string(1000, 'x')), "\"" + std::string(64, 'x') + "...\"");
}

}  // namespace
}  // namespace tiercel
