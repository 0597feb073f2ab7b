// SPDX-License-Identifier: Apache-2.0
#include "base/option_value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/quantity.h"

namespace tiercel {
namespace {

std::string lower_case(std::string_view text) {
  std::string result(text);
  for (char& letter : result) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return result;
}

std::optional<bool> parse_bool(std::string_view text) {
  const std::string word = lower_case(text);
  if (word == "true" || word == "on" || word == "yes" || word == "1") return true;
  if (word == "false" || word == "off" || word == "no" || word == "0") return false;
  return std::nullopt;
}

std::optional<int64_t> parse_integer(std::string_view text) {
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits.push_back(text[i]);
      continue;
    }
    const auto is_digit = [&](size_t at) {
      return at < text.size() && text[at] >= '0' && text[at] <= '9';
    };
    if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) return std::nullopt;
  }
  int64_t number = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stopped, error] = std::from_chars(digits.data(), end, number);
  if (error != std::errc() || stopped != end) return std::nullopt;
  return number;
}

std::optional<double> parse_real(std::string_view text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stopped != end || !std::isfinite(number)) return std::nullopt;
  return number;
}

// long double, because double does not hold every integer of 64 bits.
bool in_range(const Option& option, long double number) {
  if (option.minimum && number < static_cast<long double>(*option.minimum)) return false;
  return !option.maximum || number <= static_cast<long double>(*option.maximum);
}

// A bound in the words in which the value would be written.
std::string bound_text(OptionType type, double bound) {
  if (type == OptionType::kBytes && bound >= 0 && bound < 0x1p64) {
    return exact_bytes(static_cast<uint64_t>(bound));
  }
  if (type == OptionType::kDuration && std::abs(bound) < 9e9) {
    return exact_duration(Duration(std::llround(bound * 1e9)));
  }
  if (type == OptionType::kInteger && std::abs(bound) < 0x1p63) {
    return std::to_string(static_cast<int64_t>(bound));
  }
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), bound);
  return std::string(text.data(), end);
}

std::string allowed_without_range(const Option& option) {
  switch (option.type) {
    case OptionType::kBool:
      return "true, false (also on, off, yes, no, 1, 0)";
    case OptionType::kInteger:
      return "a whole number";
    case OptionType::kReal:
      return "a number";
    case OptionType::kBytes:
      return "a size such as 64KiB";
    case OptionType::kDuration:
      return "a duration such as 50ms";
    case OptionType::kString:
      return "text that is not empty";
    case OptionType::kChoice: {
      std::string text;
      for (const std::string& choice : option.choices) {
        text.append(text.empty() ? "" : ", ").append(choice);
      }
      return text;
    }
  }
  return "";
}

Error value_error(const Option& option, std::string_view text) {
  return Error(Code::kInvalid, option.name + " is " + quoted_text(text) +
                                   "; allowed: " + OptionTable::allowed_text(option));
}

// With the parser's own words, which say what is wrong with the text.
Error value_error(const Option& option, const Error& error) {
  return Error(error.code(), option.name + " is wrong: " + error.message() +
                                 "; allowed: " + OptionTable::allowed_text(option));
}

}  // namespace

std::string OptionTable::allowed_text(const Option& option) {
  if (option.minimum && option.maximum) {
    return bound_text(option.type, *option.minimum) + " to " +
           bound_text(option.type, *option.maximum);
  }
  if (option.minimum) return "at least " + bound_text(option.type, *option.minimum);
  if (option.maximum) return "at most " + bound_text(option.type, *option.maximum);
  return allowed_without_range(option);
}

Result<OptionValue> parse_option_value(const Option& option, std::string_view text) {
  switch (option.type) {
    case OptionType::kBool:
      if (const auto value = parse_bool(text)) return OptionValue(*value);
      break;
    case OptionType::kInteger:
      if (const auto value = parse_integer(text);
          value && in_range(option, static_cast<long double>(*value))) {
        return OptionValue(*value);
      }
      break;
    case OptionType::kReal:
      if (const auto value = parse_real(text);
          value && in_range(option, static_cast<long double>(*value))) {
        return OptionValue(*value);
      }
      break;
    case OptionType::kBytes: {
      const auto value = parse_bytes(text);
      if (!value) return value_error(option, value.error());
      if (*value > INT64_MAX || !in_range(option, static_cast<long double>(*value))) break;
      return OptionValue(static_cast<int64_t>(*value));
    }
    case OptionType::kDuration: {
      const auto value = parse_duration(text);
      if (!value) return value_error(option, value.error());
      // Compared as durations: the bound 0.05 s is not exactly 50 ms as a double.
      const auto nanoseconds = [](double seconds) {
        return std::round(static_cast<long double>(seconds) * 1e9L);
      };
      const auto count = static_cast<long double>(value->count());
      if (option.minimum && count < nanoseconds(*option.minimum)) break;
      if (option.maximum && count > nanoseconds(*option.maximum)) break;
      return OptionValue(*value);
    }
    case OptionType::kString:
      // Where a name is optional, nothing at all says so; an empty one is a variable of a script
      // that was not set.
      if (text.empty()) break;
      return OptionValue(std::string(text));
    case OptionType::kChoice:
      if (std::find(option.choices.begin(), option.choices.end(), text) != option.choices.end()) {
        return OptionValue(std::string(text));
      }
      break;
  }
  return value_error(option, text);
}

}  // namespace tiercel
