// SPDX-License-Identifier: Apache-2.0
//
// OptionTable: one table says what may be configured; every source is read through it.
//
// Later sources win: defaults < file < environment < command line. An unknown name is refused with
// the nearest known one, a bad value with the option's name, the value and what is allowed, and
// where it stood. The table also makes the command line's help and the docs.
//
// Threads: plain values.
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/status.h"

#include "base/nearest_name.h"
#include "base/quantity.h"

namespace tiercel {

enum class OptionType : uint8_t {
  kBool,      // true / false (also on/off, yes/no, 1/0)
  kInteger,   // signed 64 bits, decimal; `_` allowed between digits
  kReal,      // finite
  kBytes,     // 4096, 64KiB, 8GiB, 1.5GB; unit letters as B KB MB GB TB KiB MiB GiB TiB
  kDuration,  // 50ms, 1.5s, 200us, 2min, 1h; 0 needs no unit
  kString,    // not empty
  kChoice,    // one of `choices`
};

using OptionValue = std::variant<bool, int64_t, double, std::string, Duration>;

struct Option {
  std::string name = {};  // snake_case: `host_bytes`; --host-bytes on the command line
  OptionType type = OptionType::kString;
  std::string help = {};               // one sentence, no full stop
  std::string default_value = {};      // as text; empty for "not set"
  std::optional<double> minimum = {};  // for integer, real, bytes (bytes), duration (seconds)
  std::optional<double> maximum = {};
  std::vector<std::string> choices = {};  // for kChoice
  bool repeatable = false;                // reserved; must be false
};

// An option without a range, and one with both ends of it.
Option make_option(std::string name, OptionType type, std::string help, std::string default_value);
Option make_option(std::string name, OptionType type, std::string help, std::string default_value,
                   double minimum, double maximum);

// Where a value came from, lowest first.
enum class OptionSource : uint8_t { kDefault, kFile, kEnvironment, kCommandLine };

class OptionTable;

// The result of reading all sources: every option of the table has a value or is not set.
class OptionValues {
 public:
  bool is_set(std::string_view name) const;
  OptionSource source(std::string_view name) const;
  // Typed access; asking for an unknown name or the wrong type is a programming error and asserts.
  bool get_bool(std::string_view name) const;
  int64_t get_integer(std::string_view name) const;  // also kBytes, in bytes
  double get_real(std::string_view name) const;
  Duration get_duration(std::string_view name) const;
  const std::string& get_string(std::string_view name) const;  // also kChoice

 private:
  friend class OptionTable;
  struct Entry {
    std::optional<OptionValue> value;
    OptionSource source = OptionSource::kDefault;
  };
  const Entry& entry(std::string_view name) const;
  std::map<std::string, Entry, std::less<>> entries_;
};

class OptionTable {
 public:
  OptionTable() = default;
  // Asserts on a malformed table (two equal names, a default out of range).
  OptionTable(std::initializer_list<Option> options);
  void add(Option option);

  const std::vector<Option>& options() const { return options_; }
  const Option* find(std::string_view name) const;

  // All defaults.
  OptionValues defaults() const;

  // Sets one option from text, unless a higher source has set it: then the text is only checked.
  // `where` names the place for messages, such as "--host-bytes", "TIERCEL_HOST_BYTES" or
  // "tiercel.toml:3"; empty: nothing is named. Accepts `-` for `_` in names.
  Status set(OptionValues& values, std::string_view name, std::string_view text,
             OptionSource source, std::string_view where) const;

  // Reads a TOML file (flat keys; one level of [section] joins as section_key; at most 1 MiB).
  // kNotFound, kInvalid. After an error `values` is as before; so too for the two below.
  Status read_file(OptionValues& values, const std::string& path) const;
  // The same from text; `name` stands for the path in messages.
  Status read_toml(OptionValues& values, std::string_view text, const std::string& name) const;

  // Reads `prefix` + upper-case name, such as TIERCEL_HOST_BYTES, from the given environment
  // (nullptr-terminated NAME=value strings, as environ). Unknown names with the prefix are refused,
  // but for those of `others` (snake_case), which somebody else reads.
  Status read_environment(OptionValues& values, const char* const* environment,
                          std::string_view prefix, std::span<const std::string> others = {}) const;

  // "1 to 65536", "4KiB to 1TiB", "lru, s3fifo"
  static std::string allowed_text(const Option& option);

 private:
  // The name that `name` may have meant, else just one of the table; empty for an empty table.
  std::string_view example_for(std::string_view name) const;

  std::vector<Option> options_;
};

}  // namespace tiercel
