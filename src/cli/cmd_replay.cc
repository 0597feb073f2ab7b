// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/engine_replay.h"
#include "cli/progress_bar.h"
#include "cli/replay.h"
#include "cli/replay_options.h"
#include "cli/result_file.h"
#include "cli/trace_reader.h"

namespace tiercel {
namespace {

int refuse(const CommandContext& context, const Error& error) {
  context.error << "tiercel replay: " << error.message() << "\n";
  return kExitRefused;
}

Result<Trace> read_trace_of(const ReplayOptions& options) {
  TraceReaderOptions reader;
  reader.skip_bad_lines = options.skip_bad_lines;
  reader.request_count_max = options.limit;
  return read_trace(options.trace, reader);
}

Result<ReplayReport> run(const Trace& trace, const ReplayOptions& options,
                         const CommandContext& context) {
  std::optional<ProgressBar> bar;
  ReplayContext replay_context{context.clock, context.memory, context.stop, {}, context.started};
  std::unique_ptr<LogSink> sink;
  std::unique_ptr<Logger> logger;
  if (options.rank_host == RankHost::kProcess) {
    sink = make_stderr_sink();
    // What is killed on purpose need not be told.
    const LogLevel level = options.kill_rank_every > 0 ? LogLevel::kError : LogLevel::kWarning;
    logger = make_logger(*sink, context.clock, {.minimum_level = level});
    replay_context.logger = logger.get();
  }
  if (context.error_is_terminal) {
    bar.emplace(context.error, context.clock);
    replay_context.progress = [&bar](uint64_t done, uint64_t all) { bar->show(done, all); };
  }
  return replay(trace, options, replay_context);
}

int exit_status(const ReplayReport& report) {
  if (report.mismatches > 0 || !report.failure.empty()) return kExitFailed;
  return report.complete ? kExitOk : kExitInterrupted;
}

int exit_status(const EngineReplayReport& report) {
  if (!report.failure.empty()) return kExitFailed;
  return report.complete ? kExitOk : kExitInterrupted;
}

Result<EngineReplayReport> run_engine_replay(const Trace& trace, const ReplayOptions& options,
                                             const CommandContext& context) {
  std::optional<ProgressBar> bar;
  ReplayContext replay_context{context.clock, context.memory, context.stop, {}, context.started};
  if (context.error_is_terminal) {
    bar.emplace(context.error, context.clock);
    replay_context.progress = [&bar](uint64_t done, uint64_t all) { bar->show(done, all); };
  }
  return replay_engine(trace, options, replay_context);
}

// Prints the report and writes the file; the exit status.
template <typename Report>
int deliver(const Report& report, const ReplayOptions& options,
            std::optional<ResultFile>& json_file, const CommandContext& context) {
  if (options.json == kStandardOutput) {
    context.out << to_json(report);
  } else {
    context.out << to_text(report);
  }
  int status = exit_status(report);
  if (json_file) {
    const Status written = json_file->write(to_json(report));
    if (!written) {
      context.error << "tiercel replay: " << written.error().message() << "\n";
      status = kExitFailed;
    }
  }
  context.out.flush();
  if (!context.out) {
    context.error << "tiercel replay: standard output could not be written\n";
    status = kExitFailed;
  }
  if (!report.failure.empty()) context.error << "tiercel replay: " << report.failure << "\n";
  return status;
}

}  // namespace

int run_replay_command(const CommandLineOptions& command_line, const CommandContext& context) {
  const auto values = read_option_sources(replay_option_table(), command_line, context.environment);
  if (!values) return refuse(context, values.error());
  const auto options = read_replay_options(*values);
  if (!options) return refuse(context, options.error());
  const auto trace = read_trace_of(*options);
  if (!trace) return refuse(context, trace.error());
  // Ranks in processes may be long in coming; the replay says when they have.
  if (context.started != nullptr && options->rank_host == RankHost::kThread) {
    context.started->store(true);
  }
  // Before the replay, so that a wrong path does not cost the run.
  auto json_file = open_json_file(options->json, *values, {{"trace", options->trace}});
  if (!json_file) return refuse(context, json_file.error());

  if (options->engine.enabled) {
    const auto report = run_engine_replay(*trace, *options, context);
    if (!report) return refuse(context, report.error());
    return deliver(*report, *options, *json_file, context);
  }
  const auto report = run(*trace, *options, context);
  if (!report) return refuse(context, report.error());
  const int status = deliver(*report, *options, *json_file, context);
  for (size_t rank = 0; rank < report->ranks.size(); ++rank) {
    if (!report->ranks[rank].is_given_up) continue;
    context.error << "tiercel replay: rank " << rank
                  << " was given up, and nothing was held on it any more: "
                  << report->ranks[rank].last_error << "\n";
  }
  if (report->mismatches > 0) {
    context.error << "tiercel replay: " << report->mismatches
                  << " blocks were not what they must be; first: " << report->first_mismatch
                  << "\n";
  }
  return status;
}

}  // namespace tiercel
