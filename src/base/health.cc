// SPDX-License-Identifier: Apache-2.0
#include "tiercel/health.h"

#include <algorithm>

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

ReasonText ReasonText::of(std::string_view text) {
  constexpr std::string_view kCut = "...";
  ReasonText reason;
  reason.size = static_cast<uint8_t>(std::min(text.size(), kBytesMax));
  std::transform(text.begin(), text.begin() + reason.size, reason.bytes.begin(),
                 [](char c) { return c >= 0x20 && c < 0x7f ? c : '?'; });
  if (text.size() > kBytesMax)
    std::copy(kCut.begin(), kCut.end(), reason.bytes.end() - kCut.size());
  return reason;
}

}  // namespace tiercel
