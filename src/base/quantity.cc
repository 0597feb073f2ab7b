// SPDX-License-Identifier: Apache-2.0
#include "base/quantity.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>

namespace tiercel {
namespace {

__extension__ using Wide = unsigned __int128;

struct Unit {
  std::string_view name;
  uint64_t scale;  // in the smallest unit
};

// From small to large.
constexpr std::array<Unit, 5> kBinaryBytes = {{{"B", 1},
                                               {"KiB", uint64_t{1} << 10},
                                               {"MiB", uint64_t{1} << 20},
                                               {"GiB", uint64_t{1} << 30},
                                               {"TiB", uint64_t{1} << 40}}};
constexpr std::array<Unit, 9> kAllBytes = {{{"B", 1},
                                            {"KB", 1'000},
                                            {"MB", 1'000'000},
                                            {"GB", 1'000'000'000},
                                            {"TB", 1'000'000'000'000},
                                            kBinaryBytes[1],
                                            kBinaryBytes[2],
                                            kBinaryBytes[3],
                                            kBinaryBytes[4]}};
constexpr std::array<Unit, 6> kDurations = {{{"ns", 1},
                                             {"us", 1'000},
                                             {"ms", 1'000'000},
                                             {"s", 1'000'000'000},
                                             {"min", 60'000'000'000},
                                             {"h", 3'600'000'000'000}}};

constexpr size_t kFractionDigitsMax = 9;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// What one of the parsers is about.
struct Kind {
  const char* noun;     // "a size"
  const char* example;  // "8GiB"
  std::span<const Unit> units;
  uint64_t maximum;  // in the smallest unit
};

Error quantity_error(const Kind& kind, std::string_view text, const std::string& reason) {
  std::string units;
  for (const Unit& unit : kind.units) units.append(" ").append(unit.name);
  return Error(Code::kInvalid, quoted_text(text) + " is not " + kind.noun + " (" + reason +
                                   "); write such as " + kind.example + ", units are" + units);
}

// Takes digits, with `_` between them, from the front of `rest` and gives them without; empty if
// there are none.
std::string take_digits(std::string_view& rest) {
  std::string digits;
  while (!rest.empty()) {
    const bool separator =
        rest[0] == '_' && !digits.empty() && rest.size() > 1 && is_digit(rest[1]);
    if (!is_digit(rest[0]) && !separator) break;
    if (!separator) digits.push_back(rest[0]);
    rest.remove_prefix(1);
  }
  return digits;
}

// False if the number is above `maximum`.
bool digits_to_number(std::string_view digits, uint64_t maximum, uint64_t& number) {
  Wide sum = 0;
  for (char digit : digits) {
    sum = sum * 10 + static_cast<Wide>(digit - '0');
    if (sum > maximum) return false;
  }
  number = static_cast<uint64_t>(sum);
  return true;
}

Result<uint64_t> parse_quantity(const Kind& kind, std::string_view text, bool needs_unit) {
  std::string_view rest = text;
  if (rest.empty()) return quantity_error(kind, text, "it is empty");
  if (rest[0] == '-') return quantity_error(kind, text, "it is negative");
  const std::string whole_digits = take_digits(rest);
  if (whole_digits.empty()) return quantity_error(kind, text, "it begins with no digit");
  std::string fraction_digits;
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    fraction_digits = take_digits(rest);
    if (fraction_digits.empty()) return quantity_error(kind, text, "no digit follows the point");
    if (fraction_digits.size() > kFractionDigitsMax) {
      return quantity_error(kind, text, "more than 9 digits follow the point");
    }
  }
  if (rest.size() > 1 && rest[0] == ' ') rest.remove_prefix(1);

  const Unit* unit = &kind.units[0];
  if (!rest.empty()) {
    const auto found = std::find_if(kind.units.begin(), kind.units.end(),
                                    [&](const Unit& known) { return known.name == rest; });
    if (found == kind.units.end()) {
      return quantity_error(kind, text, "unknown unit " + quoted_text(rest));
    }
    unit = &*found;
  } else if (needs_unit &&
             (whole_digits + fraction_digits).find_first_not_of('0') != std::string::npos) {
    return quantity_error(kind, text, "it has no unit");
  }
  if (unit->scale == 1 && !fraction_digits.empty() && !(needs_unit && rest.empty())) {
    return quantity_error(kind, text, "there is no part of the smallest unit");
  }

  uint64_t whole = 0;
  if (!digits_to_number(whole_digits, kind.maximum, whole)) {
    return quantity_error(kind, text, "it is too large");
  }
  Wide sum = static_cast<Wide>(whole) * unit->scale;
  Wide fraction_scale = 1;
  Wide fraction = 0;
  for (char digit : fraction_digits) {
    fraction = fraction * 10 + static_cast<Wide>(digit - '0');
    fraction_scale *= 10;
  }
  sum += fraction * unit->scale / fraction_scale;
  if (sum > kind.maximum) return quantity_error(kind, text, "it is too large");
  return static_cast<uint64_t>(sum);
}

// In hundredths of the unit, rounded.
Wide hundredths(uint64_t number, const Unit& unit) {
  return (static_cast<Wide>(number) * 100 + unit.scale / 2) / unit.scale;
}

std::string format_rounded(uint64_t number, std::span<const Unit> units) {
  size_t chosen = 0;
  while (chosen + 1 < units.size() && number >= units[chosen + 1].scale) ++chosen;
  // What rounds up to a whole next unit is written in that: 1023.999 KiB is 1 MiB.
  while (chosen + 1 < units.size() && hundredths(number, units[chosen]) * units[chosen].scale >=
                                          static_cast<Wide>(units[chosen + 1].scale) * 100) {
    ++chosen;
  }
  const auto value = static_cast<uint64_t>(hundredths(number, units[chosen]));
  std::string text = std::to_string(value / 100);
  if (value % 100 != 0) {
    text.push_back('.');
    text.push_back(static_cast<char>('0' + value % 100 / 10));
    if (value % 10 != 0) text.push_back(static_cast<char>('0' + value % 10));
  }
  return text.append(" ").append(units[chosen].name);
}

std::string format_exact(uint64_t number, std::span<const Unit> units) {
  size_t chosen = 0;
  for (size_t i = 1; i < units.size() && number != 0; ++i) {
    if (number % units[i].scale == 0 && units[i].scale > units[chosen].scale) chosen = i;
  }
  return std::to_string(number / units[chosen].scale).append(units[chosen].name);
}

// Also right for the least value, whose negation does not exist as int64_t.
uint64_t magnitude(Duration duration) {
  const auto bits = static_cast<uint64_t>(duration.count());
  return duration.count() < 0 ? 0 - bits : bits;
}

std::string escaped(std::string_view text, size_t bytes_max) {
  std::string result;
  for (char letter : text.substr(0, bytes_max)) {
    if (letter == '"' || letter == '\\') {
      result.push_back('\\');
      result.push_back(letter);
    } else if (letter >= 0x20 && letter < 0x7f) {
      result.push_back(letter);
    } else {
      std::array<char, 5> escaped{};
      std::snprintf(escaped.data(), escaped.size(), "\\x%02x",
                    static_cast<unsigned>(static_cast<unsigned char>(letter)));
      result.append(escaped.data());
    }
  }
  return text.size() > bytes_max ? result + "..." : result;
}

constexpr size_t kTextBytesMax = 64;
constexpr size_t kPathBytesMax = 4096;

}  // namespace

Result<uint64_t> parse_bytes(std::string_view text) {
  return parse_quantity({"a size", "8GiB", kAllBytes, UINT64_MAX}, text, false);
}

Result<Duration> parse_duration(std::string_view text) {
  return parse_quantity({"a duration", "50ms", kDurations, INT64_MAX}, text, true)
      .map([](uint64_t nanoseconds) { return Duration(static_cast<int64_t>(nanoseconds)); });
}

std::string format_bytes(uint64_t bytes) { return format_rounded(bytes, kBinaryBytes); }

std::string format_duration(Duration duration) {
  if (duration.count() == 0) return "0 s";
  return (duration.count() < 0 ? "-" : "") + format_rounded(magnitude(duration), kDurations);
}

std::string exact_bytes(uint64_t bytes) { return format_exact(bytes, kAllBytes); }

std::string exact_duration(Duration duration) {
  if (duration.count() == 0) return "0s";
  return (duration.count() < 0 ? "-" : "") + format_exact(magnitude(duration), kDurations);
}

std::string escaped_text(std::string_view text) { return escaped(text, kTextBytesMax); }
std::string escaped_path(std::string_view path) { return escaped(path, kPathBytesMax); }

std::string quoted_text(std::string_view text) { return '"' + escaped_text(text) + '"'; }
std::string quoted_path(std::string_view path) { return '"' + escaped_path(path) + '"'; }

}  // namespace tiercel
