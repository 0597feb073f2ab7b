// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include "tiercel/cache.h"

#include "base/check_value.h"
#include "base/option_table.h"
#include "cache/host_geometry.h"
#include "index/eviction_policy.h"

namespace tiercel {
namespace {

Status power_of_two(std::string_view name, uint64_t value) {
  if (value != 0 && (value & (value - 1)) == 0) return {};
  return Error(Code::kInvalid, fmt::format("{} is {}; allowed: powers of two", name, value));
}

// The engine owns the device and announces no evictions; ARCHITECTURE.md says why not to a store.
Status no_write_back(std::string_view name, WritePolicy policy) {
  if (policy != WritePolicy::kWriteBack) return {};
  return Error(Code::kInvalid,
               fmt::format("{} is write_back; allowed: none, write_through, "
                           "write_through_selective (write_back is for host_to_disk only)",
                           name));
}

Status known_policy(std::string_view policy) {
  const auto names = eviction_policy_names();
  std::string list;
  for (std::string_view name : names) {
    if (name == policy) return {};
    list += (list.empty() ? "" : ", ") + std::string(name);
  }
  const std::string_view nearest = nearest_name(policy, names);
  return Error(
      Code::kInvalid,
      fmt::format("eviction_policy is \"{}\"{}; allowed: {}", policy,
                  nearest.empty() ? "" : fmt::format(", did you mean \"{}\"?", nearest), list));
}

Status check_payload_bytes(const CacheConfig& config) {
  if (config.payload_bytes.size() != config.spec.groups.size()) {
    return Error(Code::kInvalid,
                 fmt::format("payload_bytes has {} groups, the spec has {}; they must agree",
                             config.payload_bytes.size(), config.spec.groups.size()));
  }
  const size_t rank_count = config.payload_bytes.front().size();
  TIERCEL_TRY(in_range("number of ranks in payload_bytes", rank_count, 1, kRankCountMax));
  for (size_t group = 0; group < config.payload_bytes.size(); ++group) {
    if (config.payload_bytes[group].size() != rank_count) {
      return Error(Code::kInvalid,
                   fmt::format("payload_bytes of group {} has {} ranks, group 0 has {}; they must "
                               "agree",
                               group, config.payload_bytes[group].size(), rank_count));
    }
    for (uint64_t bytes : config.payload_bytes[group]) {
      TIERCEL_TRY(in_range("payload_bytes", bytes, 1, uint64_t{1} << 40));
      if (config.replicated_slices && bytes != config.payload_bytes[group].front()) {
        return Error(Code::kInvalid,
                     fmt::format("payload_bytes of group {} is {} on one rank and {} on another; "
                                 "with replicated_slices they must be equal",
                                 group, config.payload_bytes[group].front(), bytes));
      }
    }
  }
  return {};
}

}  // namespace

Status CacheConfig::validate() const {
  TIERCEL_TRY(spec.validate());
  TIERCEL_TRY(check_payload_bytes(*this));
  TIERCEL_TRY(in_range("host_blocks", host_blocks, Cache::host_blocks_min(), uint64_t{1} << 28));
  TIERCEL_TRY(in_range("host_extents", host_extents, 1, 65536));
  TIERCEL_TRY(known_policy(eviction_policy));
  TIERCEL_TRY(in_range("device_blocks", device_blocks, 0, uint64_t{1} << 28));
  TIERCEL_TRY(no_write_back("device_to_host", device_to_host));
  TIERCEL_TRY(no_write_back("host_to_store", host_to_store));
  TIERCEL_TRY(in_range("disk_put_queue_max", disk_put_queue_max, 1, uint64_t{1} << 24));
  TIERCEL_TRY(in_range("write_back_free_slots", write_back_free_slots, 0, host_blocks / 2));
  TIERCEL_TRY(in_range("selective_hits", selective_hits, 1, 255));
  TIERCEL_TRY(in_range("request_blocks_max", request_blocks_max, 1, uint64_t{1} << 24));
  TIERCEL_TRY(in_range("requests_max", requests_max, 1, uint64_t{1} << 20));
  TIERCEL_TRY(in_range("jobs_in_flight_max", jobs_in_flight_max, 4, uint64_t{1} << 20));
  TIERCEL_TRY(in_range("job_blocks_max", job_blocks_max, 1, 4096));
  TIERCEL_TRY(in_range("put_queue_max", put_queue_max, 1, uint64_t{1} << 24));
  TIERCEL_TRY(in_range("prefetch_blocks_max", prefetch_blocks_max, 1, uint64_t{1} << 20));
  TIERCEL_TRY(in_range("exists_blocks_max", exists_blocks_max, 1, uint64_t{1} << 16));
  TIERCEL_TRY(in_range("existence_entries", existence_entries, 16, uint64_t{1} << 28));
  TIERCEL_TRY(power_of_two("existence_entries", existence_entries));
  TIERCEL_TRY(in_range("quarantine_slots_max", quarantine_slots_max, 0, uint64_t{1} << 31));
  TIERCEL_TRY(in_range("completions_per_poll_max", completions_per_poll_max, 1, uint64_t{1} << 24));
  TIERCEL_TRY(in_range("sweep_nodes_per_poll", sweep_nodes_per_poll, 1, uint64_t{1} << 24));
  TIERCEL_TRY(in_range("why_requests", why_requests, 1, uint64_t{1} << 20));
  TIERCEL_TRY(positive("existence_ttl", existence_ttl));
  TIERCEL_TRY(positive("absence_ttl", absence_ttl));
  TIERCEL_TRY(positive("save_deadline", save_deadline));
  TIERCEL_TRY(positive("hold_limit", hold_limit));
  TIERCEL_TRY(load_or_recompute.validate());
  auto geometry = host_geometry(*this);
  if (!geometry) return geometry.error();
  return {};
}

Result<SlotGeometry> host_geometry(const CacheConfig& config) {
  return SlotGeometry::for_blocks(config.payload_bytes, config.host_blocks, config.host_extents);
}

std::string_view to_string(WritePolicy policy) {
  switch (policy) {
    case WritePolicy::kNone:
      return "none";
    case WritePolicy::kWriteThrough:
      return "write_through";
    case WritePolicy::kWriteThroughSelective:
      return "write_through_selective";
    case WritePolicy::kWriteBack:
      return "write_back";
  }
  return "unknown";
}

std::string_view to_string(BlockPlace place) {
  switch (place) {
    case BlockPlace::kComputed:
      return "computed";
    case BlockPlace::kDevice:
      return "device";
    case BlockPlace::kHost:
      return "host";
    case BlockPlace::kDisk:
      return "disk";
    case BlockPlace::kInFlight:
      return "in_flight";
    case BlockPlace::kStore:
      return "store";
    case BlockPlace::kUnknown:
      return "unknown";
    case BlockPlace::kNone:
      return "none";
  }
  return "unknown";
}

}  // namespace tiercel
