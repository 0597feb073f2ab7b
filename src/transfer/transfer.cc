// SPDX-License-Identifier: Apache-2.0
#include "tiercel/transfer.h"

namespace tiercel {

PathStats& PathStats::operator+=(const PathStats& other) {
  ops += other.ops;
  failed += other.failed;
  corrupt += other.corrupt;
  bytes += other.bytes;
  busy_ns += other.busy_ns;
  return *this;
}

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
    case OpKind::kDiskGet:
      return "disk_get";
    case OpKind::kDiskPut:
      return "disk_put";
    case OpKind::kDiskClear:
      return "disk_clear";
  }
  return "unknown";
}

}  // namespace tiercel
