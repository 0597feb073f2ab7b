// SPDX-License-Identifier: Apache-2.0
#include "transfer/rank_worker_check.h"

#include <string>

namespace tiercel {
namespace {

Error size_error(const std::string& what, uint64_t value, const std::string& allowed) {
  return Error(Code::kInvalid, what + " is " + std::to_string(value) + "; allowed: " + allowed);
}

Status check_options(const RankWorkerOptions& options, const SlotGeometry& geometry) {
  if (options.rank >= geometry.rank_count()) {
    return size_error("rank", options.rank, "less than " + std::to_string(geometry.rank_count()));
  }
  if (options.store_batch_max == 0) return size_error("store_batch_max", 0, "at least 1");
  if (options.slice.is_all() ? options.slice.rank != 0
                             : options.slice.rank >= options.slice.rank_count) {
    return size_error("slice.rank", options.slice.rank,
                      "less than slice.rank_count (" + std::to_string(options.slice.rank_count) +
                          "), or 0 in the slice `all`");
  }
  return {};
}

Status check_copier(const DeviceCopier& copier, const SlotGeometry& geometry, uint32_t rank) {
  for (uint32_t i = 0; i < geometry.group_count(); ++i) {
    const GroupId group(static_cast<GroupId::rep>(i));
    const uint64_t wanted = geometry.payload_bytes(group, rank);
    if (copier.payload_bytes(group) != wanted) {
      return size_error("device payload_bytes of group " + std::to_string(i),
                        copier.payload_bytes(group),
                        std::to_string(wanted) + ", as the slot geometry has it for rank " +
                            std::to_string(rank));
    }
  }
  return {};
}

}  // namespace

Status check_rank_worker(const RankWorkerOptions& options, const SlotGeometry& geometry,
                         size_t host_bytes, const DeviceCopier* copier) {
  TIERCEL_TRY(check_options(options, geometry));
  if (host_bytes != geometry.tier_bytes(options.rank)) {
    return size_error("host memory in bytes", host_bytes,
                      std::to_string(geometry.tier_bytes(options.rank)) +
                          ", as the slot geometry has it for rank " + std::to_string(options.rank));
  }
  if (copier != nullptr) TIERCEL_TRY(check_copier(*copier, geometry, options.rank));
  return {};
}

}  // namespace tiercel
