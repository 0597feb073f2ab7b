// SPDX-License-Identifier: Apache-2.0
#include "cache/two_term_fit.h"

#include <algorithm>
#include <cmath>

namespace tiercel {
namespace {

// How much the sizes must have differed before the division between the terms follows them: the sum
// of squares at which half of the difference is believed.
constexpr double kSpreadToBelieve = 0.02;
// A single measurement moves the fit no further than if it were so many times off.
constexpr double kOutlierFactor = 4;
// So many times off is a surprise, and so many surprises in a row mean that the world has changed.
constexpr double kSurpriseFactor = 1.5;
constexpr int kSurprisesInARow = 3;
// What is left of the past then, in measurements.
constexpr double kWeightAfterChange = 0.02;
// Neither term is less than this part of both together.
constexpr double kFactorMin = 0.01;

}  // namespace

void TwoTermFit::observe(double fixed, double growing, double actual, TimePoint now) {
  const double prior = fixed + growing;
  double off = std::max(actual, 1e-9) / seconds(fixed, growing);
  if (count_ > 0 && now > last_) {
    weaken(std::exp2(-std::chrono::duration<double>(now - last_) /
                     std::chrono::duration<double>(half_life_)));
  }
  last_ = std::max(last_, now);
  ++count_;
  if (off > kSurpriseFactor) {
    surprises_ = std::max(surprises_, 0) + 1;
  } else if (off < 1 / kSurpriseFactor) {
    surprises_ = std::min(surprises_, 0) - 1;
  } else {
    surprises_ = 0;
  }
  if (std::abs(surprises_) >= kSurprisesInARow) {
    if (weight_ > kWeightAfterChange) weaken(kWeightAfterChange / weight_);
    surprises_ = 0;
  } else if (weight_ >= 1) {
    off = std::clamp(off, 1 / kOutlierFactor, kOutlierFactor);
  }
  const double q = growing / prior;
  const double z = off * seconds(fixed, growing) / prior;
  weight_ += 1;
  q_ += q;
  z_ += z;
  qq_ += q * q;
  qz_ += q * z;
  fit();
}

void TwoTermFit::weaken(double factor) {
  weight_ *= factor;
  q_ *= factor;
  z_ *= factor;
  qq_ *= factor;
  qz_ *= factor;
}

void TwoTermFit::fit() {
  const double mean_q = q_ / weight_;
  const double spread = std::max(0.0, qq_ - q_ * mean_q);
  const double slope = (qz_ - z_ * mean_q) / (spread + kSpreadToBelieve);
  const double level = z_ / weight_;
  // z = fixed × (1 − q) + growing × q; both terms stay positive and the level at the mean holds.
  const double least = kFactorMin * level;
  factors_.fixed = level - slope * mean_q;
  factors_.growing = factors_.fixed + slope;
  if (factors_.fixed < least) {
    factors_.fixed = least;
    if (mean_q > 0) factors_.growing = (level - least * (1 - mean_q)) / mean_q;
  } else if (factors_.growing < least) {
    factors_.growing = least;
    if (mean_q < 1) factors_.fixed = (level - least * mean_q) / (1 - mean_q);
  }
}

}  // namespace tiercel
