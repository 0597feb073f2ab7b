// SPDX-License-Identifier: Apache-2.0
//
// SlotFaults: which places of a disk have failed lately, to tell a bad place from a bad disk.
//
// A place is bad if it has failed some times, other operations have gone well between any two of
// these, and nothing could be read from it meanwhile. A disk that fails as a whole makes no place
// bad. Bounded: with very many places failing, those that failed longest ago are forgotten.
// Threads: control thread only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tiercel/ids.h"

namespace tiercel {

class SlotFaults {
 public:
  static constexpr uint32_t kFailuresMax = 3;

  // True: the place is bad, and forgotten here.
  bool failed(SlotId slot) {
    auto fault = find(slot);
    if (fault == faults_.end()) {
      if (faults_.size() == kPlacesMax) faults_.erase(faults_.begin());
      faults_.push_back({slot, 1, successes_});
      return false;
    }
    if (fault->successes == successes_) return false;
    fault->successes = successes_;
    if (++fault->failures < kFailuresMax) {
      std::rotate(fault, fault + 1, faults_.end());
      return false;
    }
    faults_.erase(fault);
    return true;
  }
  // Proves that the disk works, and nothing for its place: what was written may be lost.
  void written() { ++successes_; }
  void read(SlotId slot) {
    ++successes_;
    if (const auto fault = find(slot); fault != faults_.end()) faults_.erase(fault);
  }

 private:
  static constexpr size_t kPlacesMax = 64;

  struct Fault {
    SlotId slot;
    uint32_t failures = 0;
    uint64_t successes = 0;  // of the whole disk, before the last failure
  };
  std::vector<Fault>::iterator find(SlotId slot) {
    return std::find_if(faults_.begin(), faults_.end(),
                        [slot](const Fault& fault) { return fault.slot == slot; });
  }

  std::vector<Fault> faults_;  // those that failed longest ago come first
  uint64_t successes_ = 0;
};

}  // namespace tiercel
