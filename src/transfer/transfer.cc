// SPDX-License-Identifier: Apache-2.0
#include "tiercel/transfer.h"

namespace tiercel {

std::string_view to_string(OpKind kind) {
  switch (kind) {
    case OpKind::kLoad:
      return "load";
    case OpKind::kSave:
      return "save";
    case OpKind::kStoreGet:
      return "store_get";
    case OpKind::kStorePut:
      return "store_put";
    case OpKind::kStoreExists:
      return "store_exists";
    case OpKind::kStoreRemove:
      return "store_remove";
  }
  return "unknown";
}

}  // namespace tiercel
