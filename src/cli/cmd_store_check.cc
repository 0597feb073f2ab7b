// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <random>

#include <fmt/core.h>

#include "tiercel/local_cache.h"

#include "base/quantity.h"
#include "base/seconds.h"
#include "cli/commands.h"
#include "cli/store_check.h"
#include "cli/store_check_options.h"
#include "store/registry.h"

namespace tiercel {
namespace {

double milliseconds_of(Duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

double mib_per_second(const StoreCheckSpeed& speed, Duration time) {
  const double bytes = static_cast<double>(speed.object_bytes) * speed.objects;
  const double seconds = to_seconds(time);
  return seconds > 0 ? bytes / seconds / (1 << 20) : 0;
}

std::string to_text(const StoreCheckReport& report) {
  std::string text;
  for (const StoreCheckStep& step : report.steps) {
    text += fmt::format("  {:<18}{}{}\n", step.name, step.failed ? "FAILED: " : "", step.result);
  }
  if (!report.speeds.empty()) {
    text += fmt::format("\n  {:<20}{:>12}{:>12}{:>12}{:>12}{:>12}\n", "one call", "put", "",
                        "exists", "get", "");
  }
  for (const StoreCheckSpeed& speed : report.speeds) {
    text += fmt::format("  {:<20}{:>9.2f} ms{:>6.0f} MiB/s{:>9.2f} ms{:>9.2f} ms{:>6.0f} MiB/s\n",
                        fmt::format("{} x {}", speed.objects, format_bytes(speed.object_bytes)),
                        milliseconds_of(speed.put), mib_per_second(speed, speed.put),
                        milliseconds_of(speed.exists), milliseconds_of(speed.get),
                        mib_per_second(speed, speed.get));
  }
  const bool is_local = std::any_of(report.speeds.begin(), report.speeds.end(),
                                    [](const StoreCheckSpeed& speed) { return speed.local > 0; });
  if (is_local) {
    text += "\n  gets from memory of this node:";
    for (const StoreCheckSpeed& speed : report.speeds) {
      text += fmt::format(" {:.0f} % of {},", 100 * speed.local, format_bytes(speed.object_bytes));
    }
    text.back() = '\n';
  }
  return text;
}

}  // namespace

OptionTable store_check_option_table() {
  constexpr double kHour = 3600;
  OptionTable table;
  table.add(
      make_option("store", OptionType::kString, "URL of the store to try (tiercel stores)", ""));
  table.add(make_option("deadline", OptionType::kDuration, "Of each call", "10s", 0.001, kHour));
  table.add(make_option("rounds", OptionType::kInteger,
                        "Calls of each kind and size that are measured", "5", 1, 1000));
  return table;
}

int run_store_check_command(const CommandLineOptions& command_line, const CommandContext& context) {
  const auto refuse = [&](const std::string& message) {
    context.error << "tiercel store check: " << message << "\n";
    return kExitRefused;
  };
  const auto values = read_option_sources(store_check_option_table(), command_line, nullptr);
  if (!values) return refuse(values.error().message());
  if (!values->is_set("store")) return refuse("store is not set; give its URL with --store");
  const std::string& url = values->get_string("store");
  const auto registry = make_store_registry();
  Result<std::unique_ptr<Store>> store = registry->open(url, StoreContext{context.clock});
  if (!store) return refuse(store.error().message());

  StoreCheckOptions options;
  options.deadline = values->get_duration("deadline");
  options.rounds = static_cast<uint32_t>(values->get_integer("rounds"));
  options.stop = context.stop;
  // Two that run at once must not meet.
  std::random_device device;
  const uint64_t seed = uint64_t{device()} << 32 | device();
  if (context.started != nullptr) context.started->store(true);
  context.out << escaped_path(url) << "\n" << std::flush;
  const StoreCheckReport report = check_store(**store, options, context.clock, seed);
  context.out << to_text(report);
  if (report.stopped) {
    context.error << "tiercel store check: interrupted\n";
    return kExitInterrupted;
  }
  return report.failed() ? kExitFailed : kExitOk;
}

}  // namespace tiercel
