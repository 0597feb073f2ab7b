// SPDX-License-Identifier: Apache-2.0
#include "store/stores_markdown.h"

#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "store/registry.h"
#include "support/paths.h"

namespace tiercel {
namespace {

std::string page() {
  const std::ifstream file(testing::source_path("docs/stores.md"));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(StoresMarkdown, DocsShowEveryStoreAndWrapperAsTheRegistryHasIt) {
  StoreRegistry registry;
  register_all_stores(registry);
  const std::string docs = page();
  ASSERT_FALSE(registry.stores().empty());
  for (const StoreInfo& store : registry.stores()) {
    EXPECT_NE(docs.find("\n" + to_markdown(store)), std::string::npos)
        << "docs/stores.md must contain:\n"
        << to_markdown(store);
  }
  for (const StoreWrapperInfo& wrapper : registry.wrappers()) {
    EXPECT_NE(docs.find("\n" + to_markdown(wrapper)), std::string::npos)
        << "docs/stores.md must contain:\n"
        << to_markdown(wrapper);
  }
}

TEST(StoresMarkdown, TellsWhereThereAreNoOptions) {
  StoreInfo store;
  store.scheme = "plain";
  store.summary = "Does nothing";
  EXPECT_EQ(to_markdown(store), "### `plain:`\n\nDoes nothing.\n\nNo options.\n");
}

}  // namespace
}  // namespace tiercel
