// SPDX-License-Identifier: Apache-2.0
//
// The text of sidecar.py and of the modules that it imports, which cmake puts into the library.
#pragma once

#include <array>
#include <string_view>

namespace tiercel::mooncake {

struct SidecarModule {
  std::string_view name;
  std::string_view text;
};

extern const std::array<SidecarModule, 3> kSidecarModules;
extern const std::string_view kSidecarProgram;

}  // namespace tiercel::mooncake
