// SPDX-License-Identifier: Apache-2.0
#include "tiercel/health.h"

namespace tiercel {

std::string_view to_string(StoreCondition condition) {
  switch (condition) {
    case StoreCondition::kNone:
      return "none";
    case StoreCondition::kUp:
      return "up";
    case StoreCondition::kOpen:
      return "open";
    case StoreCondition::kProbing:
      return "probing";
  }
  return "unknown";
}

std::string to_string(const StoreHealth& health) {
  std::string text(to_string(health.condition));
  if (health.cause != Code::kOk) text.append(" (").append(to_string(health.cause)).append(")");
  return text;
}

}  // namespace tiercel
