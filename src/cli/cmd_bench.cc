// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstring>
#include <fstream>

#include "cli/bench.h"
#include "cli/commands.h"

namespace tiercel {
namespace {

constexpr std::string_view kStandardOutput = "-";

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

bool write_json(const std::string& text, std::ofstream& file, const std::string& path,
                const CommandContext& context) {
  file << text;
  file.close();
  if (file) return true;
  context.error << "tiercel bench: json: '" << path << "' could not be written\n";
  return false;
}

}  // namespace

int run_bench_command(const CommandLineOptions& command_line, const CommandContext& context) {
  const auto values = read_option_sources(bench_option_table(), command_line, context.environment);
  if (!values) return refuse(context, values.error());
  const auto options = read_bench_options(*values);
  if (!options) return refuse(context, options.error());
  const bool json_only = options->json == kStandardOutput;
  std::ofstream json_file;
  if (!options->json.empty() && !json_only) {
    json_file.open(options->json, std::ios::out | std::ios::trunc);
    if (!json_file) {
      return refuse(context, Error(Code::kInvalid,
                                   "json is '" + options->json +
                                       "', which cannot be written: " + std::strerror(errno)));
    }
  }

  const BenchContext bench{
      context.clock, context.memory, context.stop,
      [&context](const std::string& note) { context.error << "tiercel bench: " << note << "\n"; }};
  BenchFigures all;
  int status = kExitOk;
  for (const std::string& name : options->subjects) {
    if (bench.stopped()) break;
    const auto figures = subject_of(name).run(*options, bench);
    if (!figures) {
      context.error << "tiercel bench: " << name << ": " << figures.error().message() << "\n";
      status = kExitFailed;
      continue;
    }
    if (!json_only) context.out << bench_text(*figures) << std::flush;
    all.insert(all.end(), figures->begin(), figures->end());
  }
  if (json_only) context.out << bench_json(all);
  if (json_file.is_open() && !write_json(bench_json(all), json_file, options->json, context)) {
    status = kExitFailed;
  }
  context.out.flush();
  if (!context.out) {
    context.error << "tiercel bench: standard output could not be written\n";
    status = kExitFailed;
  }
  return status == kExitOk && bench.stopped() ? kExitInterrupted : status;
}

}  // namespace tiercel
