// SPDX-License-Identifier: Apache-2.0
//
// PlantedFault: a fault that the check must find, planted in the engine to show that it would.
#pragma once

#include <cstdint>
#include <string_view>

namespace tiercel::tiny {

enum class PlantedFault : uint8_t {
  kNone,
  kByteFlip,         // one bit of a block that a request found in a cache, on the last rank
  kSwapBlocks,       // two such blocks change places, on every rank
  kShareUncomputed,  // the last token of a chunk is reported as computed, and is not
  kStaleWeights,     // the weights change, the namespace does not
};

constexpr std::string_view to_string(PlantedFault fault) {
  switch (fault) {
    case PlantedFault::kNone:
      return "none";
    case PlantedFault::kByteFlip:
      return "byte-flip";
    case PlantedFault::kSwapBlocks:
      return "swap-blocks";
    case PlantedFault::kShareUncomputed:
      return "share-uncomputed";
    case PlantedFault::kStaleWeights:
      return "stale-weights";
  }
  return "unknown";
}

}  // namespace tiercel::tiny
