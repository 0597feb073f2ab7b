// SPDX-License-Identifier: Apache-2.0
#include "store/faulty/fault_plan.h"

#include <string>
#include <utility>

namespace tiercel {
namespace {

Option probability(std::string name, std::string help) {
  return make_option(std::move(name), OptionType::kReal, std::move(help), "0", 0, 1);
}

Option at_least_0(std::string name, OptionType type, std::string help, std::string default_value) {
  Option option = make_option(std::move(name), type, std::move(help), std::move(default_value));
  option.minimum = 0;
  return option;
}

}  // namespace

OptionTable fault_option_table() {
  OptionTable table;
  table.add(at_least_0("fault_seed", OptionType::kInteger,
                       "The same seed and the same calls give the same faults", "0"));
  table.add(probability("fault_delay",
                        "Probability that a submission is delayed: by seed its execution (a get "
                        "writes late, a deadline that passes meanwhile does not stop it) or its "
                        "answer only"));
  table.add(at_least_0("fault_delay_min", OptionType::kDuration, "Shortest delay", "1ms"));
  table.add(at_least_0("fault_delay_max", OptionType::kDuration, "Longest delay", "10ms"));
  table.add(probability("fault_drop",
                        "Probability that the completion of a submission never comes; by seed it "
                        "has happened or not; close ends it as unavailable"));
  table.add(
      probability("fault_lost_answer",
                  "Probability that a submission is carried out but every item is answered as "
                  "timeout"));
  table.add(probability("fault_error",
                        "Probability that an item ends as unavailable and nothing is done"));
  table.add(probability("fault_no_space",
                        "Probability that a put item ends as no_space and nothing is done"));
  table.add(probability("fault_corrupt",
                        "Probability that one bit of the result of a get item is flipped, answered "
                        "as ok"));
  table.add(probability("fault_truncate",
                        "Probability that a put item stores only the head of its object, or that a "
                        "get item zeroes the tail of its result; answered as ok"));
  return table;
}

Result<FaultOptions> read_fault_options(const OptionValues& values) {
  FaultOptions options;
  options.seed = static_cast<uint64_t>(values.get_integer("fault_seed"));
  options.delay = values.get_real("fault_delay");
  options.delay_min = values.get_duration("fault_delay_min");
  options.delay_max = values.get_duration("fault_delay_max");
  options.drop = values.get_real("fault_drop");
  options.lost_answer = values.get_real("fault_lost_answer");
  options.error = values.get_real("fault_error");
  options.no_space = values.get_real("fault_no_space");
  options.corrupt = values.get_real("fault_corrupt");
  options.truncate = values.get_real("fault_truncate");
  if (options.delay_min > options.delay_max) {
    return Error(Code::kInvalid, "fault_delay_min is " + format_duration(options.delay_min) +
                                     ", more than fault_delay_max, which is " +
                                     format_duration(options.delay_max) +
                                     "; give both, the smaller one as fault_delay_min");
  }
  return options;
}

FaultPlan draw_fault_plan(const FaultOptions& options, FaultTarget target, size_t items,
                          Random& random) {
  FaultPlan plan;
  const bool delayed = random.chance(options.delay);
  const bool delays_execution = random.chance(0.5);
  const auto delay_span = static_cast<uint64_t>((options.delay_max - options.delay_min).count());
  const Duration delay = options.delay_min + Duration(random.between(0, delay_span));
  if (delayed) {
    plan.delay_kind = delays_execution ? DelayKind::kExecution : DelayKind::kCompletion;
    plan.delay = delay;
  }
  plan.drop = random.chance(options.drop);
  const bool dropped_after_execution = random.chance(0.5);
  plan.carried_out = !plan.drop || dropped_after_execution;
  plan.lost_answer = random.chance(options.lost_answer);
  plan.items.resize(items);
  for (ItemFault& item : plan.items) {
    const bool error = random.chance(options.error);
    const bool no_space = random.chance(options.no_space);
    item.corrupt = random.chance(options.corrupt) && target == FaultTarget::kGet;
    item.truncate = random.chance(options.truncate) && target != FaultTarget::kOther;
    item.position = random.next();
    if (no_space && target == FaultTarget::kPut) item.injected = Code::kNoSpace;
    if (error) item.injected = Code::kUnavailable;
  }
  return plan;
}

}  // namespace tiercel
