// SPDX-License-Identifier: Apache-2.0
#include <poll.h>

#include "tiercel/local_cache.h"

#include "base/quantity.h"
#include "cli/commands.h"
#include "cli/store_serve_options.h"
#include "store/registry.h"

namespace tiercel {
namespace {

// The store takes its memory out of the pool within this time.
constexpr Duration kCloseTime = std::chrono::seconds(10);

// Says what the store says, whenever it says something else, until it is told to stop.
void serve(Store& store, const CommandContext& context) {
  std::string said;
  std::vector<StoreCompletion> completions;
  while (context.stop == nullptr || !context.stop->load()) {
    store.poll(&completions);
    std::string state = store.state();
    if (state != said) context.out << state << "\n" << std::flush;
    said = std::move(state);
    pollfd source{.fd = store.completion_fd(), .events = POLLIN, .revents = 0};
    // A signal ends the wait too.
    constexpr int kLookMs = 500;
    ::poll(&source, 1, kLookMs);
  }
}

}  // namespace

OptionTable store_serve_option_table() {
  OptionTable table;
  table.add(make_option("store", OptionType::kString,
                        "URL of the store, with the memory that is given to it", ""));
  return table;
}

int run_store_serve_command(const CommandLineOptions& command_line, const CommandContext& context) {
  const auto refuse = [&](const std::string& message) {
    context.error << "tiercel store serve: " << message << "\n";
    return kExitRefused;
  };
  const auto values = read_option_sources(store_serve_option_table(), command_line, nullptr);
  if (!values) return refuse(values.error().message());
  if (!values->is_set("store")) return refuse("store is not set; give its URL with --store");
  const std::string& url = values->get_string("store");
  // From here on whoever stops this is waited for: the pool should know that the memory goes.
  if (context.started != nullptr) context.started->store(true);
  const auto registry = make_store_registry();
  Result<std::unique_ptr<Store>> store = registry->open(url, StoreContext{context.clock});
  if (!store) return refuse(store.error().message());
  const uint64_t bytes = (*store)->stats().given_bytes;
  if (bytes == 0) {
    return refuse("'" + escaped_path(url) +
                  "' gives no memory to anybody; say how much, as in "
                  "mooncake://host:port?segment=8GiB");
  }
  context.out << "giving " << format_bytes(bytes) << " to " << escaped_path(url) << "\n";
  serve(**store, context);
  const Status closed = (*store)->close(context.clock.now() + kCloseTime);
  if (closed) return kExitOk;
  context.error << "tiercel store serve: " << closed.error().message() << "\n";
  return kExitFailed;
}

}  // namespace tiercel
