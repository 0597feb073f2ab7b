// SPDX-License-Identifier: Apache-2.0
//
// The part of docs/stores.md that is made from the registry, so that page and program cannot
// differ.
#pragma once

#include <string>

#include "store/registry.h"

namespace tiercel {

// A heading, the summary and a table of the options, in Markdown; ends with a line feed.
std::string to_markdown(const StoreInfo& store);
std::string to_markdown(const StoreWrapperInfo& wrapper);

}  // namespace tiercel
