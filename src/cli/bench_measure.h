// SPDX-License-Identifier: Apache-2.0
//
// How benchmarks measure: the thing and its plain limit in turns, so that whatever the machine does
// meanwhile meets both; the median of the pairs, with quartiles as the spread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tiercel/clock.h"

#include "cli/bench.h"

namespace tiercel {

// Makes the compiler believe that somebody reads `value`.
template <typename Value>
void keep(const Value& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}

// Quartiles and ends of a list; zeros for an empty one.
struct Spread {
  double low = 0, quarter = 0, median = 0, three_quarters = 0, high = 0;
};
Spread spread_of(std::vector<double> values);
// The value at or below which the share `fraction` of the values lies; 0 for an empty list.
double quantile(std::vector<double> values, double fraction);

struct Pairs {
  std::vector<double> measured;
  std::vector<double> limit;
};

// Seconds that `work` takes.
template <typename Work>
double seconds_of(const Clock& clock, Work&& work) {
  const TimePoint begin = clock.now();
  work();
  return std::chrono::duration<double>(clock.now() - begin).count();
}

// Runs both `runs` times in turns after a first pair that does not count; every second pair starts
// with the limit. `measured` and `limit` return their own figure. Ends early if asked to stop, also
// in the middle of a pair, which then does not count.
template <typename Measured, typename Limit>
Pairs in_turns(uint32_t runs, const BenchContext& context, Measured&& measured, Limit&& limit) {
  Pairs pairs;
  for (uint32_t run = 0; run <= runs && !context.stopped(); ++run) {
    double first = 0;
    double second = 0;
    if (run % 2 == 0) {
      first = measured();
      if (context.stopped()) break;
      second = limit();
    } else {
      second = limit();
      if (context.stopped()) break;
      first = measured();
    }
    if (run == 0) continue;
    pairs.measured.push_back(first);
    pairs.limit.push_back(second);
  }
  return pairs;
}

// `reach` says what the ratio should be, such as "ratio at most 1.15"; empty: nothing.
BenchFigure paired_figure(std::string name, std::string unit, const Pairs& pairs,
                          const std::string& reach);
// A figure without a limit.
BenchFigure plain_figure(std::string name, std::string unit, const std::vector<double>& values,
                         const std::string& reach);

}  // namespace tiercel
