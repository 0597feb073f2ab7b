// SPDX-License-Identifier: Apache-2.0
//
// Runs episodes in child processes, so that a crash or an assertion is a failure like any other,
// and finds the shortest failing list of steps that it can.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "failure.h"
#include "sim_config.h"

namespace tiercel::sim {

// Steps of one episode, in order. Episodes are short, so that calm is checked often.
using Steps = std::vector<uint64_t>;
inline constexpr uint64_t kEpisodeSteps = 1000;
// In place of a step: what is checked at the end of an episode.
inline constexpr uint64_t kFinish = UINT64_MAX;

// How a child process ended.
struct Outcome {
  bool failed = false;
  std::string check;  // "crash" if the process died
  std::string message;
  uint64_t episode = 0;  // seed of the episode
  uint64_t step = 0;     // kFinish: at its end
  uint64_t steps_run = 0;
  double seconds = 0;
  Coverage coverage;
};

// `step_count` steps in as many episodes as that takes.
Outcome run_episodes(const SimConfig& config, const Sabotage& sabotage, uint64_t seed,
                     uint64_t step_count);
// One episode with these steps, then its end. `trace`: every step says what it does on standard
// error.
Outcome run_episode(const SimConfig& config, const Sabotage& sabotage, uint64_t episode,
                    const Steps& steps, bool trace);

// Leaves out whatever the failure does not need, within `time_max`.
Steps shorten(const SimConfig& config, const Sabotage& sabotage, const Outcome& failure,
              Steps steps, std::chrono::seconds time_max);

// "0-4,7,9" and back; empty if the text is no such list.
std::string to_text(const Steps& steps);
Steps steps_from_text(const std::string& text);
Steps steps_up_to(uint64_t step);

}  // namespace tiercel::sim
