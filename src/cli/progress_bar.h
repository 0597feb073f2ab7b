// SPDX-License-Identifier: Apache-2.0
//
// A progress bar for a terminal.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <utility>

#include "tiercel/clock.h"

namespace tiercel {

// Redraws one line of `out`, a few times a second at most; the destructor wipes it away.
class ProgressBar {
 public:
  // `unit`: what is counted.
  ProgressBar(std::ostream& out, const Clock& clock, std::string unit = "requests")
      : out_(out), clock_(clock), unit_(std::move(unit)) {}
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(uint64_t done, uint64_t all);

 private:
  std::ostream& out_;
  const Clock& clock_;
  const std::string unit_;
  TimePoint next_{};
  bool drawn_ = false;
};

}  // namespace tiercel
