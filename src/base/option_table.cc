// SPDX-License-Identifier: Apache-2.0
#include "base/option_table.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/option_value.h"

namespace tiercel {
namespace {

bool is_snake_case(std::string_view name) {
  return !name.empty() && name[0] >= 'a' && name[0] <= 'z' &&
         std::all_of(name.begin(), name.end(), [](char letter) {
           return (letter >= 'a' && letter <= 'z') || (letter >= '0' && letter <= '9') ||
                  letter == '_';
         });
}

bool has_range(OptionType type) {
  return type == OptionType::kInteger || type == OptionType::kReal || type == OptionType::kBytes ||
         type == OptionType::kDuration;
}

bool has_lower_case(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char letter) { return letter >= 'a' && letter <= 'z'; });
}

std::string lower_case(std::string_view text) {
  std::string result(text);
  for (char& letter : result) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return result;
}

std::string upper_case(std::string_view text) {
  std::string result(text);
  for (char& letter : result) {
    if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
  }
  return result;
}

template <typename T>
const T& get(const std::optional<OptionValue>& value) {
  TIERCEL_ASSERT(value.has_value(), "the option has a value");
  const T* const typed = std::get_if<T>(&*value);
  TIERCEL_ASSERT(typed != nullptr, "the option is asked for by its own type");
  return *typed;
}

}  // namespace

const OptionValues::Entry& OptionValues::entry(std::string_view name) const {
  const auto found = entries_.find(name);
  TIERCEL_ASSERT(found != entries_.end(), "the option is in the table");
  return found->second;
}

Option make_option(std::string name, OptionType type, std::string help, std::string default_value) {
  Option option;
  option.name = std::move(name);
  option.type = type;
  option.help = std::move(help);
  option.default_value = std::move(default_value);
  return option;
}

Option make_option(std::string name, OptionType type, std::string help, std::string default_value,
                   double minimum, double maximum) {
  Option option = make_option(std::move(name), type, std::move(help), std::move(default_value));
  option.minimum = minimum;
  option.maximum = maximum;
  return option;
}

bool OptionValues::is_set(std::string_view name) const { return entry(name).value.has_value(); }
OptionSource OptionValues::source(std::string_view name) const { return entry(name).source; }
bool OptionValues::get_bool(std::string_view name) const { return get<bool>(entry(name).value); }
int64_t OptionValues::get_integer(std::string_view name) const {
  return get<int64_t>(entry(name).value);
}
double OptionValues::get_real(std::string_view name) const {
  return get<double>(entry(name).value);
}
Duration OptionValues::get_duration(std::string_view name) const {
  return get<Duration>(entry(name).value);
}
const std::string& OptionValues::get_string(std::string_view name) const {
  return get<std::string>(entry(name).value);
}

OptionTable::OptionTable(std::initializer_list<Option> options) {
  for (const Option& option : options) add(option);
}

void OptionTable::add(Option option) {
  TIERCEL_ASSERT(is_snake_case(option.name), "an option's name is snake_case");
  TIERCEL_ASSERT(find(option.name) == nullptr, "an option's name is in the table once");
  TIERCEL_ASSERT((option.type == OptionType::kChoice) == !option.choices.empty(),
                 "a choice has choices, nothing else has");
  TIERCEL_ASSERT(has_range(option.type) || (!option.minimum && !option.maximum),
                 "only numbers, sizes and durations have a range");
  TIERCEL_ASSERT(!option.minimum || !option.maximum || *option.minimum <= *option.maximum,
                 "a range is not empty");
  TIERCEL_ASSERT(!option.repeatable, "repeatable is reserved");
  TIERCEL_ASSERT(
      option.default_value.empty() || parse_option_value(option, option.default_value).has_value(),
      "a default is an allowed value");
  options_.push_back(std::move(option));
}

const Option* OptionTable::find(std::string_view name) const {
  const auto found = std::find_if(options_.begin(), options_.end(),
                                  [&](const Option& option) { return option.name == name; });
  return found == options_.end() ? nullptr : &*found;
}

OptionValues OptionTable::defaults() const {
  OptionValues values;
  for (const Option& option : options_) {
    OptionValues::Entry& entry = values.entries_[option.name];
    if (!option.default_value.empty()) {
      entry.value = *parse_option_value(option, option.default_value);
    }
  }
  return values;
}

std::string_view OptionTable::example_for(std::string_view name) const {
  std::vector<std::string_view> names;
  names.reserve(options_.size());
  for (const Option& option : options_) names.push_back(option.name);
  const std::string_view nearest = nearest_name(name, names);
  return nearest.empty() && !names.empty() ? names.front() : nearest;
}

Status OptionTable::set(OptionValues& values, std::string_view name, std::string_view text,
                        OptionSource source, std::string_view where) const {
  const std::string place = where.empty() ? "" : std::string(where) + ": ";
  std::string canonical(name);
  std::replace(canonical.begin(), canonical.end(), '-', '_');
  const Option* const option = find(canonical);
  if (option == nullptr) {
    std::vector<std::string_view> names;
    std::string list;
    for (const Option& known : options_) {
      names.push_back(known.name);
      list.append(list.empty() ? "" : ", ").append(known.name);
    }
    const std::string_view nearest = nearest_name(canonical, names);
    return Error(
        Code::kInvalid,
        place + "unknown option " + quoted_text(canonical) + "; " +
            (nearest.empty() ? "known: " + list : "did you mean " + quoted_text(nearest) + "?"));
  }
  Result<OptionValue> value = parse_option_value(*option, text);
  if (!value) return Error(value.error().code(), place + value.error().message());
  OptionValues::Entry& entry = values.entries_[option->name];
  if (entry.value && entry.source > source) return {};
  entry.value = *std::move(value);
  entry.source = source;
  return {};
}

Status OptionTable::read_environment(OptionValues& values, const char* const* environment,
                                     std::string_view prefix,
                                     std::span<const std::string> others) const {
  TIERCEL_ASSERT(!prefix.empty(), "without a prefix, every variable would be an option");
  if (environment == nullptr) return {};
  OptionValues read = values;
  for (; *environment != nullptr; ++environment) {
    const std::string_view variable = *environment;
    const size_t equals = variable.find('=');
    if (equals == std::string_view::npos || !variable.starts_with(prefix)) continue;
    const std::string_view full_name = variable.substr(0, equals);
    if (full_name.size() < prefix.size()) continue;
    const std::string_view name = full_name.substr(prefix.size());
    const std::string where = escaped_text(full_name);
    const std::string option = lower_case(name);
    if (has_lower_case(name)) {
      return Error(Code::kInvalid, where + ": unknown option; names of environment variables are " +
                                       "upper-case, such as " + std::string(prefix) +
                                       upper_case(example_for(option)));
    }
    // A name of the table wins: both may have it.
    const bool is_of_others = std::find(others.begin(), others.end(), option) != others.end();
    if (is_of_others && find(option) == nullptr) continue;
    TIERCEL_TRY(set(read, option, variable.substr(equals + 1), OptionSource::kEnvironment, where));
  }
  values = std::move(read);
  return {};
}

}  // namespace tiercel
