// SPDX-License-Identifier: Apache-2.0
//
// The command line of the tool. What it may say comes from the option tables; what it does is in
// the commands.

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <unistd.h>

#include "cli/bench_options.h"
#include "cli/commands.h"
#include "cli/disk_tool.h"
#include "cli/replay_options.h"
#include "cli/store_check_options.h"
#include "cli/store_serve_options.h"

namespace tiercel {
namespace {

std::atomic<bool> g_stop{false};
std::atomic<bool> g_started{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler uses them");

void stop(int) {
  if (!g_started.load()) ::_exit(kExitInterrupted);
  g_stop.store(true);
}

// The first Ctrl-C asks to stop, a second one ends the program at once; and so does the first while
// nothing has been started that could be printed.
void install_stop_handler() {
  struct sigaction action {};
  action.sa_handler = stop;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

// An option of the table as CLI11 knows it.
struct BoundOption {
  std::string name;
  std::string text;
  CLI::Option* parsed = nullptr;
};

std::string described(const Option& option) {
  std::string text = option.help;
  if (option.type != OptionType::kBool && option.type != OptionType::kString) {
    text += "; " + OptionTable::allowed_text(option);
  }
  if (!option.default_value.empty()) text += " [" + option.default_value + "]";
  return text;
}

// Makes a flag for each option. Values stay text: the table reads them, with the same words as in
// files.
std::vector<std::unique_ptr<BoundOption>> bind(CLI::App& command, const OptionTable& table) {
  std::vector<std::unique_ptr<BoundOption>> bound;
  for (const Option& option : table.options()) {
    auto& target = *bound.emplace_back(std::make_unique<BoundOption>());
    target.name = option.name;
    const std::string flag = option_flag(option.name);
    if (option.type == OptionType::kBool) {
      const std::string negative = "!--no-" + flag.substr(2);
      target.parsed = command.add_flag(flag + "," + negative, target.text, described(option));
    } else {
      target.parsed = command.add_option(flag, target.text, described(option))->type_name("VALUE");
    }
    target.parsed->take_last();
  }
  return bound;
}

CommandLineOptions given(const std::vector<std::unique_ptr<BoundOption>>& bound) {
  CommandLineOptions options;
  for (const auto& option : bound) {
    if (option->parsed->count() > 0) options.emplace_back(option->name, option->text);
  }
  return options;
}

// Says what is wrong with the first word that nobody knows.
int refuse_unknown(const std::string& word, const CLI::App& command,
                   const std::vector<std::string>& known) {
  const std::string head = word.substr(0, word.find('='));
  const std::vector<std::string_view> names(known.begin(), known.end());
  const std::string_view nearest = nearest_name(head, names);
  std::cerr << "tiercel: unknown argument '" << escaped_text(head) << "'";
  if (!nearest.empty()) std::cerr << "; did you mean '" << nearest << "'?";
  std::cerr << " (see tiercel " << (command.get_parent() ? command.get_name() + " " : "")
            << "--help)\n";
  return kExitRefused;
}

// What is opened later must not get the number of a standard stream that is closed, and with it
// that stream's output. Reading only, so that writing to it still fails.
void fill_standard_descriptors() {
  int fd = 0;
  do {
    fd = ::open("/dev/null", O_RDONLY);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) ::close(fd);
}

// What does not fit below the limit of file size (ulimit -f) is said as an error; the signal would
// end the program instead.
void ignore_file_size_signal() { std::signal(SIGXFSZ, SIG_IGN); }

// Whoever reads the output must hear that it is not whole.
int after_output(int status) {
  std::cout.flush();
  if (std::cout || status != kExitOk) return status;
  std::cerr << "tiercel: standard output could not be written\n";
  return kExitFailed;
}

int run(int argc, char** argv) {
  CLI::App app("Tiercel: the KV-cache tier of an LLM serving engine", "tiercel");
  app.allow_extras();
  CLI::App& replay = *app.add_subcommand(
      "replay", "Replay a trace of requests through the tiers and check every byte");
  CLI::App& bench = *app.add_subcommand(
      "bench",
      "Measure the parts beside their plain limits: key, checksum, index, host, copy, ring, "
      "cache, engine, disk, mooncake");
  CLI::App& inspect = *app.add_subcommand("inspect", "Show what is in a disk tier");
  CLI::App& verify = *app.add_subcommand(
      "verify", "Read all of a disk tier, check every byte, and drop what is bad (--repair)");
  CLI::App& stores = *app.add_subcommand("stores", "List the stores of this build");
  CLI::App& store = *app.add_subcommand("store", "Try a store, or give memory to one");
  CLI::App& store_check = *store.add_subcommand(
      "check", "Connect, put, get, verify, remove; say what is wrong in words, or how fast it is");
  CLI::App& store_serve = *store.add_subcommand(
      "serve",
      "Give memory of this node to the store (segment= in its URL) until Ctrl-C or SIGTERM");
  CLI::App& version = *app.add_subcommand("version", "Print the version");
  replay.footer(
      "Options may also stand in a TOML file (--config) and in the environment "
      "(TIERCEL_HOST_BLOCKS); "
      "the command line wins over the environment, the environment over the file. See "
      "docs/replay.md.");
  const OptionTable table = replay_option_table();
  const auto bound = bind(replay, table);
  const OptionTable bench_table = bench_option_table();
  const auto bench_bound = bind(bench, bench_table);
  std::vector<std::string> bench_subjects;
  bench.add_option("subject", bench_subjects, "Subjects to measure; none is all of them");
  // What the two have takes a folder as a plain word.
  struct DiskTool {
    CLI::App& command;
    OptionTable table;
    int (*run)(const CommandLineOptions&, const CommandContext&);
    std::vector<std::unique_ptr<BoundOption>> bound;
    std::vector<std::string> folders;
  };
  std::array<DiskTool, 2> disk_tools{
      DiskTool{inspect, inspect_option_table(), run_inspect_command, {}, {}},
      DiskTool{verify, verify_option_table(), run_verify_command, {}, {}}};
  for (DiskTool& tool : disk_tools) {
    tool.bound = bind(tool.command, tool.table);
    tool.command.add_option("DIR", tool.folders, "Folder of the disk tier")->expected(0, 1);
    tool.command.footer("See docs/operations.md.");
  }
  const OptionTable check_table = store_check_option_table();
  const auto check_bound = bind(store_check, check_table);
  const OptionTable serve_table = store_serve_option_table();
  const auto serve_bound = bind(store_serve, serve_table);
  for (CLI::App* command : {&replay, &bench, &inspect, &verify, &stores, &store, &store_check,
                            &store_serve, &version}) {
    command->allow_extras();
  }

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    app.exit(help, std::cout, std::cerr);
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    std::cerr << "tiercel: " << error.what() << "\n";
    return kExitRefused;
  }
  const SystemClock clock;
  const CommandContext context{std::cout, std::cerr, ::isatty(STDERR_FILENO) != 0,
                               clock,     environ,   available_memory(),
                               &g_stop,   &g_started};
  const auto chosen = app.get_subcommands();
  if (chosen.empty()) {
    const auto extra = app.remaining();
    if (!extra.empty())
      return refuse_unknown(extra.front(), app,
                            {"replay", "bench", "inspect", "verify", "stores", "store", "version"});
    std::cout << app.help();
    return kExitOk;
  }
  CLI::App& command = *chosen.front();
  const auto extra = app.remaining(true);
  if (!extra.empty()) {
    std::vector<std::string> known{"--help"};
    if (&command == &replay) {
      for (const Option& option : table.options()) known.push_back(option_flag(option.name));
    }
    if (&command == &bench) {
      for (const Option& option : bench_table.options()) known.push_back(option_flag(option.name));
    }
    if (&command == &store) {
      known.insert(known.end(), {"check", "serve"});
      for (const Option& option : check_table.options()) known.push_back(option_flag(option.name));
    }
    for (const DiskTool& tool : disk_tools) {
      if (&command != &tool.command) continue;
      for (const Option& option : tool.table.options()) known.push_back(option_flag(option.name));
    }
    return refuse_unknown(extra.front(), command, known);
  }
  if (&command == &version) return run_version_command(context);
  if (&command == &stores) return run_stores_command(context);
  if (&command == &store && !store_check.parsed() && !store_serve.parsed()) {
    std::cout << store.help();
    return kExitOk;
  }
  install_stop_handler();
  if (&command == &store && store_serve.parsed()) {
    return run_store_serve_command(given(serve_bound), context);
  }
  if (&command == &store) return run_store_check_command(given(check_bound), context);
  if (&command == &bench) {
    CommandLineOptions options = given(bench_bound);
    if (!bench_subjects.empty()) {
      options.emplace_back("subjects", CLI::detail::join(bench_subjects, ","));
    }
    return run_bench_command(options, context);
  }
  for (const DiskTool& tool : disk_tools) {
    if (&command != &tool.command) continue;
    CommandLineOptions options = given(tool.bound);
    for (const std::string& folder : tool.folders) options.emplace_back("disk_path", folder);
    return tool.run(options, context);
  }
  return run_replay_command(given(bound), context);
}

}  // namespace
}  // namespace tiercel

// Errors are values; what is thrown here comes from the standard library.
int main(int argc, char** argv) {
  try {
    tiercel::fill_standard_descriptors();
    tiercel::ignore_file_size_signal();
    return tiercel::after_output(tiercel::run(argc, argv));
  } catch (const std::bad_alloc&) {
    std::fputs("tiercel: out of memory; give it more (ulimit -v, cgroup limit) or less to hold\n",
               stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tiercel: %s\n", error.what());
  }
  return tiercel::kExitFailed;
}
