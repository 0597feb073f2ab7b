// SPDX-License-Identifier: Apache-2.0
//
// The value of one option from text, checked against its type and range.
#pragma once

#include <string>
#include <string_view>

#include "base/option_table.h"

namespace tiercel {

// kInvalid with name, value and what is allowed, without the place where the text stood.
Result<OptionValue> parse_option_value(const Option& option, std::string_view text);

}  // namespace tiercel
