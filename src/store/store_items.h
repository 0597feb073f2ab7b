// SPDX-License-Identifier: Apache-2.0
//
// What every backend must check of the items that it is given.
#pragma once

#include <string>
#include <string_view>

#include "tiercel/store.h"

namespace tiercel {

// False for an item that must end as `invalid`: a default-made key, no bytes, a null span with a
// length.
bool is_well_formed(const ObjectKey& key);
bool is_well_formed(const StoreGetItem& item);
bool is_well_formed(const StorePutItem& item);

// A deadline counts as passed from its own instant on.
inline bool has_passed(TimePoint deadline, TimePoint now) {
  return deadline != kNoDeadline && now >= deadline;
}

}  // namespace tiercel
