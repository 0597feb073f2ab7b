// SPDX-License-Identifier: Apache-2.0
#include "index/eviction_policy.h"

#include "base/nearest_name.h"
#include "index/policy/lru.h"
#include "index/policy/s3fifo.h"

namespace tiercel {

namespace {

template <typename Policy>
std::unique_ptr<EvictionPolicy> make(const EvictionPolicyContext& context) {
  return std::make_unique<Policy>(context);
}

struct Entry {
  std::string_view name;
  std::unique_ptr<EvictionPolicy> (*make)(const EvictionPolicyContext& context);
};

// Every policy, one line each.
constexpr Entry kPolicies[] = {
    {"lru", make<LruPolicy>},
    {"s3fifo", make<S3FifoPolicy>},
};

}  // namespace

std::vector<std::string_view> eviction_policy_names() {
  std::vector<std::string_view> names;
  for (const Entry& entry : kPolicies) names.push_back(entry.name);
  return names;
}

Result<std::unique_ptr<EvictionPolicy>> make_eviction_policy(std::string_view name,
                                                             const EvictionPolicyContext& context) {
  for (const Entry& entry : kPolicies) {
    if (entry.name == name) return entry.make(context);
  }
  const auto names = eviction_policy_names();
  std::string message = "eviction policy is '" + std::string(name) + "'; allowed: ";
  for (size_t i = 0; i < names.size(); ++i) message += (i == 0 ? "" : ", ") + std::string(names[i]);
  const std::string_view nearest = nearest_name(name, names);
  if (!nearest.empty()) message += "; did you mean '" + std::string(nearest) + "'?";
  return Error(Code::kInvalid, std::move(message));
}

}  // namespace tiercel
