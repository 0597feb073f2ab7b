// SPDX-License-Identifier: Apache-2.0
//
// Sequences of operations on a cache: the simulation's driver (tests/sim), whose steps the input
// chooses. The first byte is the configuration, two bytes are the seed of the episode, then two
// bytes a step. A step number always means the same in an episode, so that taking one out or
// putting one in leaves the others alone, which is what a fuzzer needs to get on.
#include "fuzz_target.h"
#include "sim/driver.h"
#include "sim/sim_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tiercel;  // NOLINT: the one function of this program
  constexpr size_t kStepsMax = 300;
  fuzz::Input input({data, size});
  const auto configs = sim::sim_configs();
  const sim::SimConfig& config = configs[input.byte() % configs.size()];
  const uint64_t episode = input.u16();
  try {
    sim::Driver driver(config, sim::Sabotage{}, episode);
    for (size_t step = 0; step < kStepsMax && !input.empty(); ++step) driver.step(input.u16());
    driver.finish();
  } catch (const sim::SimFailure& failure) {
    fuzz::require(false, failure.check + ": " + failure.message);
  }
  return 0;
}
