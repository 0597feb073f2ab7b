// SPDX-License-Identifier: Apache-2.0
//
// Options as text, "name=value" a line, and sizes and durations among them: a bad one changes
// nothing; a good one is exact when written and read again; what people get to see is clean.
#include <algorithm>

#include "option_fuzz_table.h"

namespace tiercel::fuzz {
namespace {

void check_size(std::string_view text) {
  const Result<uint64_t> bytes = parse_bytes(text);
  if (!bytes) {
    require(bytes.code() == Code::kInvalid, "what is no size is invalid");
    return;
  }
  const Result<uint64_t> again = parse_bytes(exact_bytes(*bytes));
  require(again.has_value() && *again == *bytes, "a size is exact when written and read again");
  require(!format_bytes(*bytes).empty(), "a size can be shown");
}

void check_duration(std::string_view text) {
  const Result<Duration> duration = parse_duration(text);
  if (!duration) {
    require(duration.code() == Code::kInvalid, "what is no duration is invalid");
    return;
  }
  require(*duration >= Duration::zero(), "a duration is never negative");
  const Result<Duration> again = parse_duration(exact_duration(*duration));
  require(again.has_value() && *again == *duration,
          "a duration is exact when written and read again");
  require(!format_duration(*duration).empty(), "a duration can be shown");
}

void check_clean(std::string_view text) {
  require(std::ranges::all_of(text, [](char c) { return c >= 0x20 && c < 0x7f; }),
          "a message is printable");
}

void check_setting(OptionValues& values, std::string_view line) {
  const size_t equals = std::min(line.find('='), line.size());
  const std::string_view name = line.substr(0, equals);
  const std::string_view value = line.substr(std::min(equals + 1, line.size()));
  check_size(value);
  check_duration(value);
  check_clean(quoted_text(value));
  const std::string before = text_of(values);
  const Status set =
      option_table().set(values, name, value, OptionSource::kCommandLine, "--option");
  const std::string after = text_of(values);
  if (!set) {
    require(after == before, "a bad value changes nothing");
    check_clean(set.error().message());
    return;
  }
  require(option_table()
                  .set(values, name, "no such value at all", OptionSource::kFile, "a file")
                  .has_value() ||
              text_of(values) == after,
          "a lower source changes nothing");
}

}  // namespace
}  // namespace tiercel::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tiercel::fuzz;  // NOLINT: the one function of this program
  std::string_view text = Input({data, size}).rest();
  tiercel::OptionValues values = option_table().defaults();
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    check_setting(values, text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return 0;
}
