// SPDX-License-Identifier: Apache-2.0
//
// Where the tests find the files of the checkout and the programs that were built beside them. The
// folders are known to one source only, so that a compiler cache serves any checkout.
#pragma once

#include <string>
#include <string_view>

namespace tiercel::testing {

// source_path("docs/replay.md"), binary_path("tiercel"): absolute paths.
std::string source_path(std::string_view relative);
std::string binary_path(std::string_view relative);

}  // namespace tiercel::testing
