// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cli/bench.h"
#include "cli/commands.h"
#include "cli/result_file.h"

namespace tiercel {
namespace {

int refuse(const CommandContext& context, const Error& error) {
  context.error << "tiercel bench: " << error.message() << "\n";
  return kExitRefused;
}

const BenchSubject& subject_of(const std::string& name) {
  const auto subjects = bench_subjects();
  for (const BenchSubject& subject : subjects) {
    if (subject.name == name) return subject;
  }
  return subjects.front();  // names have been checked
}

// What can be known beforehand is refused beforehand, for all subjects.
Status check(const BenchOptions& options, const BenchContext& context) {
  for (const std::string& name : options.subjects) {
    const Status fits = subject_of(name).check(options, context);
    if (!fits) return Error(fits.error().code(), name + ": " + fits.error().message());
  }
  return {};
}

// Plain words come as the option too; one of the two would be dropped.
Status check_subjects_once(const CommandLineOptions& command_line) {
  const auto count = std::count_if(command_line.begin(), command_line.end(),
                                   [](const auto& option) { return option.first == "subjects"; });
  if (count <= 1) return {};
  return Error(Code::kInvalid,
               "subjects are named both as plain words and by --subjects; leave one");
}

}  // namespace

int run_bench_command(const CommandLineOptions& command_line, const CommandContext& context) {
  const Status named_once = check_subjects_once(command_line);
  if (!named_once) return refuse(context, named_once.error());
  const auto values = read_option_sources(bench_option_table(), command_line, context.environment);
  if (!values) return refuse(context, values.error());
  const auto options = read_bench_options(*values);
  if (!options) return refuse(context, options.error());
  const BenchContext bench{
      context.clock, context.memory, context.stop,
      [&context](const std::string& note) { context.error << "tiercel bench: " << note << "\n"; }};
  const Status fits = check(*options, bench);
  if (!fits) return refuse(context, fits.error());
  if (context.started != nullptr) context.started->store(true);
  const bool json_only = options->json == kStandardOutput;
  auto json_file = open_json_file(options->json, *values);
  if (!json_file) return refuse(context, json_file.error());

  BenchFigures all;
  int status = kExitOk;
  for (const std::string& name : options->subjects) {
    if (bench.stopped()) break;
    const auto figures = run_bench_subject(subject_of(name), *options, bench);
    if (!figures) {
      context.error << "tiercel bench: " << name << ": " << figures.error().message() << "\n";
      status = kExitFailed;
      continue;
    }
    if (!json_only) context.out << bench_text(*figures) << std::flush;
    all.insert(all.end(), figures->begin(), figures->end());
  }
  if (json_only) context.out << bench_json(all);
  if (*json_file) {
    const Status written = (**json_file).write(bench_json(all));
    if (!written) {
      context.error << "tiercel bench: " << written.error().message() << "\n";
      status = kExitFailed;
    }
  }
  context.out.flush();
  if (!context.out) {
    context.error << "tiercel bench: standard output could not be written\n";
    status = kExitFailed;
  }
  return status == kExitOk && bench.stopped() ? kExitInterrupted : status;
}

}  // namespace tiercel
