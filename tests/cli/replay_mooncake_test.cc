// SPDX-License-Identifier: Apache-2.0
//
// Whole runs over a Mooncake pool on this machine, by the tool as a user runs it.
#include <future>
#include <string>

#include <gtest/gtest.h>

#include "support/mooncake_pool.h"
#include "support/paths.h"
#include "support/shell.h"

namespace tiercel {
namespace {

using testing::MooncakePool;
using testing::Outcome;

Outcome replay(const MooncakePool& pool, const std::string& options) {
  return testing::run_shell(testing::binary_path("tiercel") + " replay --trace " +
                            testing::source_path("data/conversation_trace.jsonl") +
                            " --ranks 2 --no-optimum --store '" + pool.url() + "' " + options);
}

// The first number behind `name` in a report.
uint64_t figure(const Outcome& outcome, const std::string& name) {
  const size_t place = outcome.text.find("\n  " + name);
  if (place == std::string::npos) {
    ADD_FAILURE() << name << " is not in: " << outcome.text;
    return 0;
  }
  uint64_t number = 0;
  for (size_t i = place + 3 + name.size(); i < outcome.text.size(); ++i) {
    const char c = outcome.text[i];
    if (c >= '0' && c <= '9') {
      number = 10 * number + static_cast<uint64_t>(c - '0');
    } else if (c != ' ' && c != ',') {
      break;
    } else if (c == ' ' && number > 0) {
      break;
    }
  }
  return number;
}

TEST(ReplayMooncake, OneProcessHitsWhatAnotherHasComputed) {
  TIERCEL_NEEDS_MOONCAKE();
  const auto pool = MooncakePool::start({"--segment", "256MiB"});
  if (pool == nullptr) return;
  const std::string options = "--limit 200 --host-blocks 500 --block-bytes 4KiB --rank-host ";
  const Outcome first = replay(*pool, options + "process");
  ASSERT_EQ(first.status, 0) << first.text;
  const Outcome second = replay(*pool, options + "thread");
  ASSERT_EQ(second.status, 0) << second.text;
  EXPECT_EQ(figure(first, "mismatches"), 0U);
  EXPECT_EQ(figure(second, "mismatches"), 0U);
  EXPECT_GT(figure(second, "hit"), figure(first, "infinite cache"))
      << "more than one process alone could have: " << second.text;
}

// The pool holds a third of what is put into it, and its master dies and comes back empty.
TEST(ReplayMooncake, APoolThatIsTooSmallAndLosesItsMasterCostsHitsAndNothingElse) {
  TIERCEL_NEEDS_MOONCAKE();
  const auto pool = MooncakePool::start({"--segment", "32MiB"});
  if (pool == nullptr) return;
  auto outcome = std::async(std::launch::async, [&] {
    return replay(*pool, "--limit 400 --host-blocks 300 --block-bytes 4KiB --deadline 2s");
  });
  pool->command("await keys 1000");
  pool->command("kill master");
  pool->command("start master");
  const Outcome run = outcome.get();
  EXPECT_EQ(run.status, 0) << run.text;
  EXPECT_EQ(figure(run, "mismatches"), 0U);
  EXPECT_EQ(figure(run, "requests"), 400U);
}

}  // namespace
}  // namespace tiercel
