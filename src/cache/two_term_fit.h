// SPDX-License-Identifier: Apache-2.0
//
// TwoTermFit: learns, measurement by measurement, how far a formula of two terms is off. A prior
// says how long something takes, `fixed` + `growing` seconds (latency + bytes / bandwidth, for
// instance); the truth is taken to be a × fixed + b × growing, and a and b are fitted.
//
// - Errors count relative to the prior, so that a few large transfers do not hide many small ones.
// - The level of both terms together follows at once; how it is divided between them only as far as
//   measurements of different sizes show it. Where all are of one size the prior's division stays,
//   instead of noise.
// - A measurement loses half of its weight in each half-life, so that the first one after a long
//   pause counts nearly alone. What is believed meanwhile does not change by itself.
// - One far outlier is cut off; several surprises in a row, all to the same side, are no outliers
// but
//   another world, and the past is dropped.
//
// Threads: control thread only. Deterministic; time is told.
#pragma once

#include <cstdint>

#include "tiercel/clock.h"

namespace tiercel {

class TwoTermFit {
 public:
  explicit TwoTermFit(Duration half_life) : half_life_(half_life) {}

  // What took `actual` seconds should have taken fixed + growing, more than 0, by the prior.
  void observe(double fixed, double growing, double actual, TimePoint now);

  // Factors of the two terms; both more than 0.
  struct Factors {
    double fixed = 1;
    double growing = 1;
  };
  const Factors& factors() const { return factors_; }
  double seconds(double fixed, double growing) const {
    return factors_.fixed * fixed + factors_.growing * growing;
  }

  uint64_t count() const { return count_; }  // measurements, ever

 private:
  void weaken(double factor);
  void fit();

  const Duration half_life_;
  // Weighted sums over (q, z): q = growing / (fixed + growing), z = actual / (fixed + growing).
  double weight_ = 0, q_ = 0, z_ = 0, qq_ = 0, qz_ = 0;
  int surprises_ = 0;  // in a row; negative: quicker than expected
  Factors factors_;
  uint64_t count_ = 0;
  TimePoint last_;
};

}  // namespace tiercel
