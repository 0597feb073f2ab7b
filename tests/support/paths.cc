// SPDX-License-Identifier: Apache-2.0
#include "support/paths.h"

namespace tiercel::testing {

std::string source_path(std::string_view relative) {
  return std::string(TIERCEL_SOURCE_DIR "/").append(relative);
}
std::string binary_path(std::string_view relative) {
  return std::string(TIERCEL_BINARY_DIR "/").append(relative);
}

}  // namespace tiercel::testing
