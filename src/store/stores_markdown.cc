// SPDX-License-Identifier: Apache-2.0
#include "store/stores_markdown.h"

namespace tiercel {
namespace {

std::string options_table(const OptionTable& table) {
  if (table.options().empty()) return "No options.\n";
  std::string text = "| option | default | allowed | meaning |\n|---|---|---|---|\n";
  for (const Option& option : table.options()) {
    const std::string value =
        option.default_value.empty() ? "not set" : "`" + option.default_value + "`";
    text += "| `" + option.name + "` | " + value + " | " + OptionTable::allowed_text(option) +
            " | " + option.help + " |\n";
  }
  return text;
}

}  // namespace

std::string to_markdown(const StoreInfo& store) {
  return "### `" + store.scheme + ":`\n\n" + store.summary + ".\n\n" + options_table(store.options);
}

std::string to_markdown(const StoreWrapperInfo& wrapper) {
  return "### `" + wrapper.name + "+`\n\n" + wrapper.summary + ".\n\n" +
         options_table(wrapper.options);
}

}  // namespace tiercel
