// SPDX-License-Identifier: Apache-2.0
//
// A progress bar for a terminal.
#pragma once

#include <cstdint>
#include <ostream>

#include "tiercel/clock.h"

namespace tiercel {

// Redraws one line of `out`, a few times a second at most; the destructor wipes it away.
class ProgressBar {
 public:
  ProgressBar(std::ostream& out, const Clock& clock) : out_(out), clock_(clock) {}
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(uint64_t done, uint64_t all);

 private:
  std::ostream& out_;
  const Clock& clock_;
  TimePoint next_{};
  bool drawn_ = false;
};

}  // namespace tiercel
