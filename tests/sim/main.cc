// SPDX-License-Identifier: Apache-2.0
//
// tiercel-sim: the simulation as a program. Runs random steps against the production cache, checks
// every promise after each, and on failure prints how to see it again.
#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "runner.h"

namespace tiercel::sim {
namespace {

struct Options {
  std::string config;
  uint64_t steps = 100'000;
  uint64_t seed = 1;
  std::string episode;  // seed of one episode
  std::string only;
  std::string disable;
  std::string expect_failure;
  std::string require;
  bool promises_only = false;
  bool trace = false;
  bool quiet = false;
  int shorten_seconds = 20;
};

void print_coverage(const Coverage& coverage) {
  for (const auto& [what, times] : coverage) {
    fmt::print("  {:<44} {:>12}\n", what, times);
  }
}

std::string command_line(const Options& options, const SimConfig& config, const Outcome& outcome,
                         const Steps& steps) {
  std::string text = fmt::format("tiercel-sim --config {} --episode {} --only {}", config.name,
                                 outcome.episode, to_text(steps));
  if (!options.disable.empty()) text += " --disable " + options.disable;
  if (options.promises_only) text += " --promises-only";
  return text + " --trace";
}

void print_failure(const Options& options, const SimConfig& config, const Sabotage& sabotage,
                   const Outcome& outcome) {
  Steps steps = steps_up_to(outcome.step == kFinish ? kEpisodeSteps - 1 : outcome.step);
  fmt::print("FAILED: config {}, episode {}, {}, after {} steps\n  {}: {}\n", config.name,
             outcome.episode,
             outcome.step == kFinish ? "at its end" : fmt::format("step {}", outcome.step),
             outcome.steps_run, outcome.check, outcome.message);
  if (options.shorten_seconds > 0) {
    steps = shorten(config, sabotage, outcome, std::move(steps),
                    std::chrono::seconds(options.shorten_seconds));
    fmt::print("{} steps are enough to fail so. ", steps.size());
  }
  fmt::print("See it again with\n  {}\n", command_line(options, config, outcome, steps));
  if (options.shorten_seconds > 0 && !options.quiet) {
    std::fflush(stdout);
    run_episode(config, sabotage, outcome.episode, steps, true);
  }
}

int run_one_episode(const Options& options, const SimConfig& config, const Sabotage& sabotage) {
  Steps steps =
      options.only.empty() ? steps_up_to(options.steps - 1) : steps_from_text(options.only);
  if (options.only == "none") steps.clear();
  const Outcome outcome =
      run_episode(config, sabotage, std::stoull(options.episode), steps, options.trace);
  if (outcome.failed) {
    fmt::print("FAILED: {}\n  {}: {}\n",
               outcome.step == kFinish ? "at the end" : fmt::format("step {}", outcome.step),
               outcome.check, outcome.message);
    return 1;
  }
  fmt::print("{} steps: no check failed\n", outcome.steps_run);
  return 0;
}

// Whether everything in the comma-separated list was met at least once.
bool all_met(const std::string& list, const Coverage& coverage) {
  bool all = true;
  if (list.empty()) return true;
  for (const std::string& what : CLI::detail::split(list, ',')) {
    const auto found = coverage.find(what);
    if (found != coverage.end() && found->second > 0) continue;
    fmt::print("NOT MET: {}\n", what);
    all = false;
  }
  return all;
}

int run_all(const Options& options, const std::vector<const SimConfig*>& configs,
            const Sabotage& sabotage) {
  Coverage total;
  uint64_t steps_run = 0;
  double seconds = 0;
  for (const SimConfig* config : configs) {
    const Outcome outcome =
        run_episodes(*config, sabotage, options.seed, options.steps / configs.size());
    steps_run += outcome.steps_run;
    seconds += outcome.seconds;
    if (outcome.failed) {
      print_failure(options, *config, sabotage, outcome);
      if (options.expect_failure.empty()) return 1;
      const std::vector<std::string> allowed = CLI::detail::split(options.expect_failure, ',');
      if (std::find(allowed.begin(), allowed.end(), outcome.check) != allowed.end()) return 0;
      fmt::print("expected was another check: {}\n", options.expect_failure);
      return 1;
    }
    if (!options.quiet) {
      fmt::print("{:<14} {:>9} steps, {:.0f} a second: no check failed\n", config->name,
                 outcome.steps_run, static_cast<double>(outcome.steps_run) / outcome.seconds);
      std::fflush(stdout);
    }
    for (const auto& [what, times] : outcome.coverage) total[what] += times;
  }
  if (!options.expect_failure.empty()) {
    fmt::print("FAILED: {} steps with {} switched off, and no check noticed\n", steps_run,
               options.disable);
    return 1;
  }
  if (!options.quiet) {
    fmt::print("met in {} steps ({:.0f} a second):\n", steps_run,
               static_cast<double>(steps_run) / seconds);
    print_coverage(total);
  }
  return all_met(options.require, total) ? 0 : 1;
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Simulation of the Tiercel cache: random requests, random faults, every promise "
      "checked",
      "tiercel-sim");
  std::set<std::string> config_names;
  for (const SimConfig& config : sim_configs()) config_names.insert(config.name);
  std::set<std::string> protections;
  for (const std::string_view name : sabotage_names()) protections.emplace(name);
  app.add_option("--config", options.config, "One configuration; all of them otherwise")
      ->check(CLI::IsMember(config_names));
  app.add_option("--steps", options.steps, "Steps, over all configurations")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of all choices")->capture_default_str();
  app.add_option("--episode", options.episode, "Run one episode with this seed of its own");
  app.add_option("--only", options.only,
                 "Steps of the episode, such as 0-4,7; the others are left out");
  app.add_option("--disable", options.disable, "Switch a protection off")
      ->check(CLI::IsMember(protections));
  app.add_option("--expect-failure", options.expect_failure,
                 "Succeed if one of these checks fails, and only then");
  app.add_option("--require", options.require, "Fail if one of these was never met");
  app.add_flag("--promises-only", options.promises_only, "Check only what an engine could see");
  app.add_flag("--trace", options.trace, "With --episode: say what every step does");
  app.add_flag("--quiet", options.quiet, "Print failures only");
  app.add_option("--shorten-seconds", options.shorten_seconds,
                 "How long to look for a shorter failing run; 0: not at all")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  Sabotage sabotage;
  if (!options.disable.empty()) sabotage = *sabotage_of(options.disable);
  sabotage.promises_only = options.promises_only;
  std::vector<const SimConfig*> configs;
  for (const SimConfig& config : sim_configs()) {
    if (options.config.empty() || options.config == config.name) configs.push_back(&config);
  }
  if (!options.episode.empty()) return run_one_episode(options, *configs.front(), sabotage);
  return run_all(options, configs, sabotage);
}

}  // namespace
}  // namespace tiercel::sim

int main(int argc, char** argv) { return tiercel::sim::run(argc, argv); }
