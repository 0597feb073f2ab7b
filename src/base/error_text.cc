// SPDX-License-Identifier: Apache-2.0
#include "base/error_text.h"

#include <system_error>

namespace tiercel {

std::string error_text(int error) { return std::generic_category().message(error); }

}  // namespace tiercel
