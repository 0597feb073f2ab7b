// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace tiercel {

// As in the project() line of CMakeLists.txt; a test compares them.
inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace tiercel
