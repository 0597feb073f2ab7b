// SPDX-License-Identifier: Apache-2.0
//
// The text of sidecar.py, which cmake puts into the library.
#pragma once

#include <string_view>

namespace tiercel::mooncake {

extern const std::string_view kSidecarProgram;

}  // namespace tiercel::mooncake
