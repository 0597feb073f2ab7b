// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_measure.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

namespace tiercel {
namespace {

double at_fraction(const std::vector<double>& sorted, double fraction) {
  if (sorted.empty()) return 0;
  const double position = std::ceil(fraction * static_cast<double>(sorted.size())) - 1;
  return sorted[static_cast<size_t>(
      std::clamp(position, 0.0, static_cast<double>(sorted.size() - 1)))];
}

std::string spread_text(const std::vector<double>& values) {
  const Spread spread = spread_of(values);
  return fmt::format("{:.4g} to {:.4g}, all {:.4g} to {:.4g}", spread.quarter,
                     spread.three_quarters, spread.low, spread.high);
}

}  // namespace

double quantile(std::vector<double> values, double fraction) {
  std::sort(values.begin(), values.end());
  return at_fraction(values, fraction);
}

Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {at_fraction(values, 0), at_fraction(values, 0.25), at_fraction(values, 0.5),
          at_fraction(values, 0.75), at_fraction(values, 1)};
}

BenchFigure plain_figure(std::string name, std::string unit, const std::vector<double>& values,
                         const std::string& reach) {
  BenchFigure figure;
  figure.name = std::move(name);
  figure.unit = std::move(unit);
  figure.value = spread_of(values).median;
  figure.value_count = values.size();
  figure.conditions.emplace_back("runs", std::to_string(values.size()));
  figure.conditions.emplace_back("spread", spread_text(values));
  if (!reach.empty()) figure.conditions.emplace_back("reach", reach);
  return figure;
}

BenchFigure paired_figure(std::string name, std::string unit, const Pairs& pairs,
                          const std::string& reach) {
  BenchFigure figure = plain_figure(std::move(name), std::move(unit), pairs.measured, reach);
  std::vector<double> ratios;
  for (size_t i = 0; i < pairs.measured.size(); ++i) {
    if (pairs.limit[i] > 0) ratios.push_back(pairs.measured[i] / pairs.limit[i]);
  }
  figure.limit = spread_of(pairs.limit).median;
  figure.ratio = spread_of(ratios).median;
  figure.conditions.emplace_back("limit_spread", spread_text(pairs.limit));
  figure.conditions.emplace_back("ratio_spread", spread_text(ratios));
  return figure;
}

}  // namespace tiercel
