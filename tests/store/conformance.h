// SPDX-License-Identifier: Apache-2.0
//
// The fixture of the conformance suites: one case for every store of the registry, bare and through
// every wrapper with its default options. A new backend is tested without an edit here.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <stdlib.h>

#include "store/registry.h"
#include "store/store_harness.h"

namespace tiercel {

struct ConformanceCase {
  std::string name;
  std::string url;
  bool has_bound;  // an option `bytes` that bounds what it holds

  friend void PrintTo(const ConformanceCase& a_case, std::ostream* out) { *out << a_case.url; }
};

inline std::vector<ConformanceCase> conformance_cases() {
  StoreRegistry registry;
  register_all_stores(registry);
  std::vector<ConformanceCase> cases;
  for (const StoreInfo& store : registry.stores()) {
    const std::string url =
        store.conformance_url.empty() ? store.scheme + ":" : store.conformance_url;
    const bool has_bound = store.options.find("bytes") != nullptr;
    cases.push_back({store.scheme, url, has_bound});
    for (const StoreWrapperInfo& wrapper : registry.wrappers()) {
      cases.push_back({wrapper.name + "_" + store.scheme, wrapper.name + "+" + url, has_bound});
    }
  }
  return cases;
}

inline std::string case_name(const ::testing::TestParamInfo<ConformanceCase>& info) {
  return info.param.name;
}

class ConformanceTest : public ::testing::TestWithParam<ConformanceCase> {
 protected:
  ConformanceTest() { register_all_stores(registry_); }
  ~ConformanceTest() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  // A handle of the store under test; all handles of one test share its objects.
  std::unique_ptr<Store> open(const std::string& options = "") {
    std::string url = GetParam().url;
    if (!options.empty()) url += (url.find('?') == std::string::npos ? "?" : "&") + options;
    constexpr std::string_view kFolderMark = "{temp}";
    const size_t mark = url.find(kFolderMark);
    if (mark != std::string::npos) url.replace(mark, kFolderMark.size(), folder());
    Result<std::unique_ptr<Store>> store = registry_.open(url, {clock_});
    EXPECT_TRUE(store) << store.error().to_string();
    return store ? *std::move(store) : nullptr;
  }

  // An empty store: what earlier tests left in a service that outlives them is cleared.
  Handle open_empty(const std::string& options = "") {
    Handle handle(open(options));
    for (uint8_t name_space : {uint8_t{1}, uint8_t{2}}) {
      EXPECT_EQ(handle.clear(prefix_of(name_space)), Codes{Code::kOk});
    }
    return handle;
  }

  static std::string prefix_of(uint8_t name_space) {
    return object_key_prefix(test_namespace(name_space));
  }

  TimePoint passed_deadline() const { return clock_.now() - std::chrono::seconds(1); }
  TimePoint far_deadline() const { return clock_.now() + std::chrono::minutes(10); }

  SystemClock clock_;
  StoreRegistry registry_;

 private:
  const std::string& folder() {
    if (folder_.empty()) {
      std::string name = (std::filesystem::temp_directory_path() / "tiercel-store-XXXXXX").string();
      EXPECT_NE(::mkdtemp(name.data()), nullptr);
      folder_ = name;
    }
    return folder_;
  }
  std::string folder_;
};

}  // namespace tiercel
