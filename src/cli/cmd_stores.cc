// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include "tiercel/local_cache.h"

#include "cli/commands.h"
#include "store/registry.h"

namespace tiercel {
namespace {

void print_options(const OptionTable& table, std::ostream& out) {
  for (const Option& option : table.options()) {
    out << fmt::format("    {:<18} {} ({}; default {})\n", option.name, option.help,
                       OptionTable::allowed_text(option),
                       option.default_value.empty() ? "none" : option.default_value);
  }
}

}  // namespace

int run_stores_command(const CommandContext& context) {
  const auto registry = make_store_registry();
  context.out << "Stores, as in --store SCHEME:PATH?OPTION=VALUE&OPTION=VALUE\n";
  for (const StoreInfo& store : registry->stores()) {
    context.out << "\n  " << store.scheme << ":  " << store.summary << "\n";
    print_options(store.options, context.out);
  }
  context.out << "\nWrappers, as in --store WRAPPER+SCHEME:?OPTION=VALUE\n";
  for (const StoreWrapperInfo& wrapper : registry->wrappers()) {
    context.out << "\n  " << wrapper.name << "+  " << wrapper.summary << "\n";
    print_options(wrapper.options, context.out);
  }
  return kExitOk;
}

}  // namespace tiercel
