// SPDX-License-Identifier: Apache-2.0
#include "cli/replay_report.h"

#include <algorithm>

#include <sys/resource.h>

namespace tiercel {

TimesReport summarize_times(std::vector<uint64_t>& nanoseconds) {
  if (nanoseconds.empty()) return {};
  std::sort(nanoseconds.begin(), nanoseconds.end());
  const auto at = [&](size_t percent) {
    const size_t rank = (nanoseconds.size() * percent + 99) / 100;
    return static_cast<double>(nanoseconds[std::max<size_t>(rank, 1) - 1]) / 1000.0;
  };
  return {at(50), at(99), at(100)};
}

uint64_t ReplayReport::comebacks() const {
  uint64_t count = 0;
  for (const RankStatus& rank : ranks) count += comebacks_of(rank);
  return count;
}

uint64_t peak_rss_bytes() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace tiercel
