// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/option_table.h"

namespace tiercel {

// Of `tiercel store check`.
OptionTable store_check_option_table();

}  // namespace tiercel
