// SPDX-License-Identifier: Apache-2.0
#include "cli/progress_bar.h"

#include <string>

namespace tiercel {
namespace {

constexpr Duration kInterval = std::chrono::milliseconds(100);
constexpr uint64_t kWidth = 40;

}  // namespace

void ProgressBar::show(uint64_t done, uint64_t all) {
  const TimePoint now = clock_.now();
  if (now < next_ || all == 0) return;
  next_ = now + kInterval;
  drawn_ = true;
  const uint64_t filled = kWidth * done / all;
  out_ << "\r[" << std::string(filled, '#') << std::string(kWidth - filled, '.') << "] "
       << 100 * done / all << " %  " << done << " of " << all << " " << unit_ << std::flush;
}

ProgressBar::~ProgressBar() {
  if (drawn_) out_ << "\r\x1b[K" << std::flush;
}

}  // namespace tiercel
