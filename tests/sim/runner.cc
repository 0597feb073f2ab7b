// SPDX-License-Identifier: Apache-2.0
#include "runner.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "episode.h"
#include "oracle.h"

namespace tiercel::sim {
namespace {

// What a child tells its parent, in memory that both see; survives the child's death.
struct Report {
  uint64_t episode = 0;
  uint64_t step = 0;
  uint64_t steps_run = 0;
  bool failed = false;
  char check[64] = {};
  char message[2048] = {};
  char coverage[65536] = {};
};

template <size_t kSize>
void copy_text(char (&to)[kSize], const std::string& from) {
  const size_t length = std::min(from.size(), kSize - 1);
  std::memcpy(to, from.data(), length);
  to[length] = '\0';
}

std::string coverage_text(const Coverage& coverage) {
  std::string text;
  for (const auto& [what, times] : coverage) text += fmt::format("{} {}\n", what, times);
  return text;
}

Coverage coverage_from_text(const std::string& text) {
  Coverage coverage;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const size_t space = text.rfind(' ', end);
    if (space != std::string::npos && space > begin) {
      coverage[text.substr(begin, space - begin)] =
          std::stoull(text.substr(space + 1, end - space - 1));
    }
    begin = end + 1;
  }
  return coverage;
}

void run_one(const SimConfig& config, const Sabotage& sabotage, uint64_t episode,
             const std::function<void(Episode&)>& body, Report& report, Coverage& total) {
  report.episode = episode;
  report.step = 0;
  try {
    const std::unique_ptr<Episode> run = make_episode(config, sabotage, episode);
    body(*run);
    report.step = kFinish;
    run->finish();
    for (const auto& [what, times] : run->take_coverage()) total[what] += times;
  } catch (const SimFailure& failure) {
    report.failed = true;
    copy_text(report.check, failure.check);
    copy_text(report.message, failure.message);
  }
}

// Calls `body` in a child. With `quiet` the child's standard error goes nowhere.
Outcome in_child(bool quiet, const std::function<void(Report&)>& body) {
  void* memory =
      ::mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Outcome outcome;
  if (memory == MAP_FAILED) {
    outcome.failed = true;
    outcome.check = "setup";
    outcome.message = "no shared memory";
    return outcome;
  }
  Report* report = new (memory) Report;
  std::fflush(nullptr);
  const auto begun = std::chrono::steady_clock::now();
  const pid_t child = ::fork();
  if (child == 0) {
    if (quiet) {
      const int nowhere = ::open("/dev/null", O_WRONLY);
      if (nowhere >= 0) ::dup2(nowhere, STDERR_FILENO);
    }
    body(*report);
    std::fflush(nullptr);
    ::_exit(0);
  }
  int status = 0;
  if (child < 0) {
    copy_text(report->check, "setup");
    report->failed = true;
  } else {
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
  }
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  outcome.episode = report->episode;
  outcome.step = report->step;
  outcome.steps_run = report->steps_run;
  outcome.failed = report->failed;
  outcome.check = report->check;
  outcome.message = report->message;
  outcome.coverage = coverage_from_text(report->coverage);
  if (!report->failed && status != 0) {
    outcome.failed = true;
    outcome.check = "crash";
    outcome.message = WIFSIGNALED(status)
                          ? fmt::format("the process died of signal {}", WTERMSIG(status))
                          : fmt::format("the process ended with {}", WEXITSTATUS(status));
  }
  ::munmap(memory, sizeof(Report));
  return outcome;
}

}  // namespace

Outcome run_episodes(const SimConfig& config, const Sabotage& sabotage, uint64_t seed,
                     uint64_t step_count) {
  return in_child(false, [&](Report& report) {
    Coverage total;
    for (uint64_t number = 0; report.steps_run < step_count && !report.failed; ++number) {
      const uint64_t steps = std::min(kEpisodeSteps, step_count - report.steps_run);
      run_one(
          config, sabotage, mix(seed * 0x10001 + number),
          [&](Episode& run) {
            for (uint64_t step = 0; step < steps; ++step) {
              report.step = step;
              run.step(step);
              ++report.steps_run;
            }
          },
          report, total);
      ++total["episodes"];
    }
    copy_text(report.coverage, coverage_text(total));
  });
}

Outcome run_episode(const SimConfig& config, const Sabotage& sabotage, uint64_t episode,
                    const Steps& steps, bool trace) {
  return in_child(!trace, [&](Report& report) {
    Coverage total;
    run_one(
        config, sabotage, episode,
        [&](Episode& run) {
          if (trace) {
            run.set_trace([&](const std::string& what) {
              if (report.step == kFinish) {
                std::fprintf(stderr, "   end: %s\n", what.c_str());
              } else {
                std::fprintf(stderr, "%6llu: %s\n", static_cast<unsigned long long>(report.step),
                             what.c_str());
              }
            });
          }
          for (const uint64_t step : steps) {
            report.step = step;
            run.step(step);
            ++report.steps_run;
          }
        },
        report, total);
    copy_text(report.coverage, coverage_text(total));
  });
}

Steps shorten(const SimConfig& config, const Sabotage& sabotage, const Outcome& failure,
              Steps steps, std::chrono::seconds time_max) {
  const auto give_up = std::chrono::steady_clock::now() + time_max;
  const auto time_is_up = [&] { return std::chrono::steady_clock::now() >= give_up; };
  const auto still_fails = [&](const Steps& fewer) {
    const Outcome outcome = run_episode(config, sabotage, failure.episode, fewer, false);
    return outcome.failed && outcome.check == failure.check;
  };
  // The tail first, then ever smaller pieces, until no single step can be left out.
  for (size_t piece = std::max<size_t>(1, steps.size() / 2);;) {
    bool shorter = false;
    for (size_t end = steps.size(); end > 0 && !time_is_up();) {
      const size_t begin = end > piece ? end - piece : 0;
      Steps fewer(steps.begin(), steps.begin() + static_cast<ptrdiff_t>(begin));
      fewer.insert(fewer.end(), steps.begin() + static_cast<ptrdiff_t>(end), steps.end());
      if (still_fails(fewer)) {
        steps = std::move(fewer);
        shorter = true;
      }
      end = std::min(begin, steps.size());
    }
    if (time_is_up() || (piece == 1 && !shorter)) return steps;
    if (piece > 1) piece = (piece + 1) / 2;
  }
}

std::string to_text(const Steps& steps) {
  std::string text;
  for (size_t i = 0; i < steps.size();) {
    size_t last = i;
    while (last + 1 < steps.size() && steps[last + 1] == steps[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += last == i ? fmt::format("{}", steps[i]) : fmt::format("{}-{}", steps[i], steps[last]);
    i = last + 1;
  }
  return text.empty() ? "none" : text;
}

Steps steps_from_text(const std::string& text) {
  Steps steps;
  const char* at = text.c_str();
  while (*at != '\0') {
    char* end = nullptr;
    const uint64_t first = std::strtoull(at, &end, 10);
    if (end == at) return {};
    uint64_t last = first;
    if (*end == '-') {
      at = end + 1;
      last = std::strtoull(at, &end, 10);
      if (end == at || last < first || last - first > 1'000'000) return {};
    }
    for (uint64_t step = first; step <= last; ++step) steps.push_back(step);
    if (*end != ',' && *end != '\0') return {};
    at = *end == ',' ? end + 1 : end;
  }
  return steps;
}

Steps steps_up_to(uint64_t step) {
  Steps steps(step + 1);
  for (uint64_t i = 0; i <= step; ++i) steps[i] = i;
  return steps;
}

}  // namespace tiercel::sim
