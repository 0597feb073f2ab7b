// SPDX-License-Identifier: Apache-2.0
//
// What goes wrong with one submission to a faulty store, decided by seed when it is submitted.
//
// Every draw is made whether or not its fault is switched on, so that switching one fault on or off
// does not shift the others.
#pragma once

#include <cstdint>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/status.h"

#include "base/option_table.h"
#include "base/random.h"

namespace tiercel {

// Probabilities from 0 to 1; delay, drop and lost answer per submission, the others per item.
struct FaultOptions {
  uint64_t seed = 0;
  double delay = 0;
  Duration delay_min{};
  Duration delay_max{};  // >= delay_min
  double drop = 0;
  double lost_answer = 0;
  double error = 0;
  double no_space = 0;
  double corrupt = 0;
  double truncate = 0;
};

// The options `fault_…` of a store URL.
OptionTable fault_option_table();
// kInvalid if fault_delay_min exceeds fault_delay_max.
Result<FaultOptions> read_fault_options(const OptionValues& values);

enum class DelayKind : uint8_t {
  kNone,
  kExecution,   // the inner store is asked when the delay is over: a get writes late
  kCompletion,  // the inner store is asked at once, its answer is held back
};

struct ItemFault {
  Code injected = Code::kOk;  // other than kOk: the item ends so and never reaches the inner store
  bool corrupt = false;       // get: one bit of the result is flipped
  bool truncate = false;      // put: only a head is stored; get: the tail of the result is zeroed
  uint64_t position = 0;      // where, before reduction to the length of the item
};

struct FaultPlan {
  DelayKind delay_kind = DelayKind::kNone;
  Duration delay{};
  bool drop = false;         // the completion never comes
  bool carried_out = true;   // false for half of the dropped ones
  bool lost_answer = false;  // carried out, but answered as timeout
  std::vector<ItemFault> items;
};

enum class FaultTarget : uint8_t { kGet, kPut, kOther };

FaultPlan draw_fault_plan(const FaultOptions& options, FaultTarget target, size_t items,
                          Random& random);

}  // namespace tiercel
