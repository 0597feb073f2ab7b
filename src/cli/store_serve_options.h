// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/option_table.h"

namespace tiercel {

// Of `tiercel store serve`.
OptionTable store_serve_option_table();

}  // namespace tiercel
