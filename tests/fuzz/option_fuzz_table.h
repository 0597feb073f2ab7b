// SPDX-License-Identifier: Apache-2.0
//
// An option table with one option of every type, for the fuzz targets that read options.
#pragma once

#include <string>

#include "base/option_table.h"
#include "fuzz_target.h"

namespace tiercel::fuzz {

inline const OptionTable& option_table() {
  static const OptionTable table = {
      {.name = "verify", .type = OptionType::kBool, .help = "a switch", .default_value = "true"},
      {.name = "host_slots",
       .type = OptionType::kInteger,
       .help = "a whole number",
       .default_value = "4",
       .minimum = -10,
       .maximum = 65536},
      {.name = "share", .type = OptionType::kReal, .help = "a number", .minimum = 0, .maximum = 1},
      {.name = "host_bytes",
       .type = OptionType::kBytes,
       .help = "a size",
       .default_value = "64MiB",
       .minimum = 4096},
      {.name = "store_timeout",
       .type = OptionType::kDuration,
       .help = "a duration",
       .default_value = "50ms",
       .maximum = 3600},
      {.name = "store_url", .type = OptionType::kString, .help = "a text"},
      {.name = "policy",
       .type = OptionType::kChoice,
       .help = "a choice",
       .default_value = "lru",
       .choices = {"lru", "s3fifo"}},
  };
  return table;
}

// All values as one text, so that two sets of values can be compared. Checks the bounds in passing.
inline std::string text_of(const OptionValues& values) {
  std::string text;
  for (const Option& option : option_table().options()) {
    text += option.name + "=";
    if (!values.is_set(option.name)) {
      text += "\n";
      continue;
    }
    double number = 0;
    switch (option.type) {
      case OptionType::kBool:
        text += values.get_bool(option.name) ? "true" : "false";
        break;
      case OptionType::kInteger:
      case OptionType::kBytes:
        number = static_cast<double>(values.get_integer(option.name));
        text += std::to_string(values.get_integer(option.name));
        break;
      case OptionType::kReal:
        number = values.get_real(option.name);
        text += std::to_string(number);
        break;
      case OptionType::kDuration:
        number = std::chrono::duration<double>(values.get_duration(option.name)).count();
        text += exact_duration(values.get_duration(option.name));
        break;
      case OptionType::kString:
      case OptionType::kChoice:
        text += values.get_string(option.name);
        break;
    }
    require(!option.minimum || number >= *option.minimum, "no value is below its minimum");
    require(!option.maximum || number <= *option.maximum, "no value is above its maximum");
    text += "\n";
  }
  return text;
}

}  // namespace tiercel::fuzz
