// SPDX-License-Identifier: Apache-2.0
//
// tiercel-tiny: see README.md beside it.

#include <atomic>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/option_sources.h"
#include "tiny_llm/check.h"

namespace tiercel::tiny {
namespace {

std::atomic<bool> g_stop{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler uses it");

// The first Ctrl-C or SIGTERM asks to stop, so that the temporary folder goes; a second one ends
// the program at once.
void install_stop_handler() {
  struct sigaction action {};
  action.sa_handler = [](int) { g_stop.store(true); };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

// A folder that goes with the object.
class TemporaryFolder {
 public:
  static Result<TemporaryFolder> create() {
    std::error_code error;
    const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
    std::string pattern = (parent / "tiercel-tiny-XXXXXX").string();
    if (error || ::mkdtemp(pattern.data()) == nullptr) {
      return Error(Code::kInvalid,
                   "no temporary folder can be made at " + pattern + "; name one (--disk-path)");
    }
    return TemporaryFolder(pattern);
  }
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

int refuse(const Error& error) {
  std::cerr << "tiercel-tiny: " << error.message() << "\n";
  if (error.code() == Code::kCancelled) return kExitInterrupted;
  return error.code() == Code::kInvalid ? kExitRefused : kExitFailed;
}

std::string_view words_of(CheckVerdict verdict) {
  switch (verdict) {
    case CheckVerdict::kRight:
      return "the cache changes nothing";
    case CheckVerdict::kWrong:
      return "WRONG: see above";
    case CheckVerdict::kNotProven:
      return "NOT PROVEN: nothing differs, but not all was seen; see above";
  }
  return "unknown";
}

int check(const OptionValues& values) {
  install_stop_handler();
  auto options = read_check_options(values);
  if (!options) return refuse(options.error());
  std::unique_ptr<TemporaryFolder> temporary;
  if (options->world.disk_folder.empty()) {
    auto made = TemporaryFolder::create();
    if (!made) return refuse(made.error());
    temporary = std::make_unique<TemporaryFolder>(std::move(*made));
    options->world.disk_folder = temporary->path();
  }
  options->world.stop = &g_stop;
  const SystemClock clock;
  const auto verdict =
      run_check(*options, clock, [](std::string_view line) { std::cout << line << std::flush; });
  if (!verdict) return refuse(verdict.error());
  std::cout << words_of(*verdict) << "\n" << std::flush;
  if (!std::cout) {
    std::cerr << "tiercel-tiny: standard output could not be written\n";
    return kExitFailed;
  }
  return *verdict == CheckVerdict::kRight ? kExitOk : kExitFailed;
}

int run(int argc, char** argv) {
  CLI::App app("A tiny decoder behind Tiercel, to show that the answers do not change",
               "tiercel-tiny");
  app.footer("See examples/tiny_llm/README.md.");
  const OptionTable table = tiny_option_table();
  std::vector<std::pair<CLI::Option*, std::unique_ptr<std::string>>> texts;
  for (const Option& option : table.options()) {
    auto text = std::make_unique<std::string>();
    const std::string flag = option_flag(option.name);
    std::string help = option.help;
    if (option.type == OptionType::kChoice) help += "; " + OptionTable::allowed_text(option);
    if (!option.default_value.empty()) help += " [" + option.default_value + "]";
    CLI::Option* const parsed = option.type == OptionType::kBool
                                    ? app.add_flag(flag, *text, help)
                                    : app.add_option(flag, *text, help)->type_name("VALUE");
    texts.emplace_back(parsed->take_last(), std::move(text));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    app.exit(help, std::cout, std::cerr);
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    std::cerr << "tiercel-tiny: " << error.what() << "\n";
    return kExitRefused;
  }
  CommandLineOptions given;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].first->count() > 0) {
      given.emplace_back(table.options()[i].name, *texts[i].second);
    }
  }
  const auto values = read_option_sources(table, given, nullptr);
  if (!values) return refuse(values.error());
  if (!values->get_bool("check")) {
    std::cout << app.help();
    return kExitOk;
  }
  return check(*values);
}

}  // namespace
}  // namespace tiercel::tiny

// Errors are values; what is thrown here comes from the standard library.
int main(int argc, char** argv) {
  try {
    return tiercel::tiny::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tiercel-tiny: %s\n", error.what());
  }
  return tiercel::kExitFailed;
}
