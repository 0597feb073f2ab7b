// SPDX-License-Identifier: Apache-2.0
//
// Tiers: spaces that Tiercel owns and indexes. What a tier has is known at once and moves only when
// we say so; what a store has must be asked for (store.h).
#pragma once

#include <cstdint>
#include <string_view>

namespace tiercel {

enum class Tier : uint8_t {
  kDevice = 0,  // only where the engine leaves the device to us
  kHost = 1,    // RAM
  kDisk = 2,
};
inline constexpr uint32_t kTierCount = 3;

// The tier's bit in a mask of tiers.
constexpr uint8_t tier_bit(Tier tier) {
  return static_cast<uint8_t>(1u << static_cast<unsigned>(tier));
}

// "device", "host", "disk"; "unknown" for a value out of range.
constexpr std::string_view to_string(Tier tier) {
  switch (tier) {
    case Tier::kDevice:
      return "device";
    case Tier::kHost:
      return "host";
    case Tier::kDisk:
      return "disk";
  }
  return "unknown";
}

}  // namespace tiercel
