// SPDX-License-Identifier: Apache-2.0
//
// Configuration files: a bad one changes nothing and says why; a good one can be read again and
// gives the same; no value leaves its bounds.
#include "option_fuzz_table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tiercel;  // NOLINT: the one function of this program
  const std::string_view text = fuzz::Input({data, size}).rest();
  const OptionTable& table = fuzz::option_table();
  OptionValues values = table.defaults();
  const std::string before = fuzz::text_of(values);
  const Status read = table.read_toml(values, text, "tiercel.toml");
  const std::string after = fuzz::text_of(values);
  if (!read) {
    fuzz::require(read.code() == Code::kInvalid, "a bad file is invalid");
    fuzz::require(read.error().message().starts_with("tiercel.toml:"), "an error names the place");
    fuzz::require(after == before, "a bad file changes nothing");
    return 0;
  }
  fuzz::require(table.read_toml(values, text, "tiercel.toml").has_value(),
                "a good file can be read again");
  fuzz::require(fuzz::text_of(values) == after, "the same file gives the same values");
  return 0;
}
