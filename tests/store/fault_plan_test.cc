// SPDX-License-Identifier: Apache-2.0
#include "store/faulty/fault_plan.h"

#include <chrono>
#include <set>

#include <gtest/gtest.h>

namespace tiercel {
namespace {

using std::chrono::milliseconds;

TEST(FaultPlan, DefaultsAreHarmless) {
  const auto options = read_fault_options(fault_option_table().defaults());
  ASSERT_TRUE(options);
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    for (FaultTarget target : {FaultTarget::kGet, FaultTarget::kPut, FaultTarget::kOther}) {
      const FaultPlan plan = draw_fault_plan(*options, target, 3, random);
      EXPECT_EQ(plan.delay_kind, DelayKind::kNone);
      EXPECT_FALSE(plan.drop || plan.lost_answer);
      EXPECT_TRUE(plan.carried_out);
      ASSERT_EQ(plan.items.size(), 3U);
      for (const ItemFault& item : plan.items) {
        EXPECT_EQ(item.injected, Code::kOk);
        EXPECT_FALSE(item.corrupt || item.truncate);
      }
    }
  }
}

TEST(FaultPlan, ReadsEveryOption) {
  const OptionTable table = fault_option_table();
  OptionValues values = table.defaults();
  const auto set = [&](std::string_view name, std::string_view text) {
    ASSERT_TRUE(table.set(values, name, text, OptionSource::kCommandLine, name));
  };
  set("fault_seed", "42");
  set("fault_delay", "0.1");
  set("fault_delay_min", "2ms");
  set("fault_delay_max", "3ms");
  set("fault_drop", "0.2");
  set("fault_lost_answer", "0.3");
  set("fault_error", "0.4");
  set("fault_no_space", "0.5");
  set("fault_corrupt", "0.6");
  set("fault_truncate", "1");
  const auto options = read_fault_options(values);
  ASSERT_TRUE(options);
  EXPECT_EQ(options->seed, 42U);
  EXPECT_EQ(options->delay, 0.1);
  EXPECT_EQ(options->delay_min, milliseconds(2));
  EXPECT_EQ(options->delay_max, milliseconds(3));
  EXPECT_EQ(options->drop, 0.2);
  EXPECT_EQ(options->lost_answer, 0.3);
  EXPECT_EQ(options->error, 0.4);
  EXPECT_EQ(options->no_space, 0.5);
  EXPECT_EQ(options->corrupt, 0.6);
  EXPECT_EQ(options->truncate, 1);
}

TEST(FaultPlan, RefusesAShortestDelayAboveTheLongest) {
  const OptionTable table = fault_option_table();
  OptionValues values = table.defaults();
  ASSERT_TRUE(table.set(values, "fault_delay_min", "1s", OptionSource::kCommandLine, "test"));
  EXPECT_EQ(read_fault_options(values).code(), Code::kInvalid);
}

TEST(FaultPlan, RefusesAProbabilityAboveOne) {
  const OptionTable table = fault_option_table();
  OptionValues values = table.defaults();
  EXPECT_EQ(table.set(values, "fault_drop", "1.5", OptionSource::kCommandLine, "test").code(),
            Code::kInvalid);
}

TEST(FaultPlan, SwitchingOneFaultOnDoesNotShiftTheOthers) {
  FaultOptions few;
  few.drop = 0.3;
  few.corrupt = 0.3;
  FaultOptions more = few;
  more.delay = 0.5;
  more.delay_max = milliseconds(9);
  more.error = 0.5;
  Random first(9);
  Random second(9);
  for (int i = 0; i < 500; ++i) {
    const FaultPlan a = draw_fault_plan(few, FaultTarget::kGet, 2, first);
    const FaultPlan b = draw_fault_plan(more, FaultTarget::kGet, 2, second);
    ASSERT_EQ(a.drop, b.drop);
    ASSERT_EQ(a.carried_out, b.carried_out);
    for (size_t item = 0; item < 2; ++item) {
      ASSERT_EQ(a.items[item].corrupt, b.items[item].corrupt);
      ASSERT_EQ(a.items[item].position, b.items[item].position);
    }
  }
}

TEST(FaultPlan, DelaysStayWithinTheirLimitsAndComeInBothKinds) {
  FaultOptions options;
  options.delay = 1;
  options.delay_min = milliseconds(3);
  options.delay_max = milliseconds(5);
  Random random(4);
  std::set<DelayKind> kinds;
  Duration shortest = milliseconds(5);
  Duration longest = milliseconds(3);
  for (int i = 0; i < 1000; ++i) {
    const FaultPlan plan = draw_fault_plan(options, FaultTarget::kGet, 1, random);
    kinds.insert(plan.delay_kind);
    shortest = std::min(shortest, plan.delay);
    longest = std::max(longest, plan.delay);
    ASSERT_GE(plan.delay, options.delay_min);
    ASSERT_LE(plan.delay, options.delay_max);
  }
  EXPECT_EQ(kinds, (std::set<DelayKind>{DelayKind::kExecution, DelayKind::kCompletion}));
  EXPECT_LT(shortest, milliseconds(4));
  EXPECT_GT(longest, milliseconds(4));
}

}  // namespace
}  // namespace tiercel
