// SPDX-License-Identifier: Apache-2.0
//
// EngineRegret: what the choices between loading and recomputing have cost. Each one is judged,
// when it is made, by the speeds that the replay has been told and by the queues as they stand: the
// time of the chosen cut against that of the best one.
#pragma once

#include <cstdint>
#include <vector>

#include "tiercel/load_or_recompute.h"

#include "transfer/timed_data_plane.h"

namespace tiercel {

class EngineRegret final : public LoadChoiceListener {
 public:
  struct Truth {
    PrefillRate prefill;
    double overlap = 0;
    uint32_t block_tokens = 0;
  };
  // Both outlive it.
  EngineRegret(const Truth& truth, const TimedDataPlane& plane) : truth_(truth), plane_(plane) {}

  void chosen(RequestId request, const CutQuestion& question, const LoadChoice& choice) override;

  // Sums over all choices, in seconds: of the best cuts, and what was lost against them by the cuts
  // that were chosen, by loading nothing, and by loading all that was there.
  struct Sums {
    uint64_t choices = 0;
    double best = 0, lost = 0, lost_loading_nothing = 0, lost_loading_all = 0;
  };
  const Sums& sums() const { return sums_; }

 private:
  // ends_[blocks]: see Cut; how far it goes, all blocks that can be had.
  void look_ahead(const CutQuestion& question);
  double total_of(const CutQuestion& question, uint32_t blocks, double patience) const;

  // Seconds until the blocks before a cut are in the host tier (0: they are there), and until host
  // → device has taken its part of them.
  struct Cut {
    double to_host = 0;
    double to_device = 0;
  };

  const Truth truth_;
  const TimedDataPlane& plane_;
  std::vector<Cut> cuts_;  // scratch
  double last_block_ = 0;
  Sums sums_;
};

}  // namespace tiercel
