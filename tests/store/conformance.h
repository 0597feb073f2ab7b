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
#include "support/mooncake_pool.h"

namespace tiercel {

// In a store's conformance_url; Mooncake's is the only service so far.
inline constexpr std::string_view kServiceMark = "{service}";

struct ConformanceCase {
  std::string name;
  std::string url;
  bool has_bound;  // an option `bytes` that bounds what it holds
  bool counts_held = true;
  bool replaces_whole = true;

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
    cases.push_back({store.scheme, url, has_bound, store.counts_held, store.replaces_whole});
    const bool has_service = url.find(kServiceMark) != std::string::npos;
    for (const StoreWrapperInfo& wrapper : registry.wrappers()) {
      // A handle of a service takes its time: with the wrapper that every store has in practice.
      if (has_service && wrapper.name != "guard") continue;
      cases.push_back({wrapper.name + "_" + store.scheme, wrapper.name + "+" + url, has_bound,
                       store.counts_held, store.replaces_whole});
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

  void SetUp() override {
    if (GetParam().url.find(kServiceMark) == std::string::npos) return;
    TIERCEL_NEEDS_MOONCAKE();
    pool_ = shared_pool();
    ASSERT_NE(pool_, nullptr);
  }

  // A handle of the store under test; all handles of one test share its objects.
  std::unique_ptr<Store> open(const std::string& options = "") {
    std::string url = GetParam().url;
    if (!options.empty()) url += (url.find('?') == std::string::npos ? "?" : "&") + options;
    replace_mark(url, kFolderMark, [this] { return folder(); });
    replace_mark(url, kServiceMark, [this] { return pool_->address(); });
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

  // Each step is a round trip, or several.
  bool asks_a_service() const { return pool_ != nullptr; }

  // Of a race. A handle of a service may well be a process.
  std::vector<uint32_t> writer_counts() const {
    return pool_ == nullptr ? std::vector<uint32_t>{2, 16} : std::vector<uint32_t>{2, 4};
  }

  TimePoint passed_deadline() const { return clock_.now() - std::chrono::seconds(1); }
  TimePoint far_deadline() const { return clock_.now() + std::chrono::minutes(10); }

  SystemClock clock_;
  StoreRegistry registry_;

 private:
  static constexpr std::string_view kFolderMark = "{temp}";

  template <typename Text>
  static void replace_mark(std::string& url, std::string_view mark, Text text) {
    const size_t place = url.find(mark);
    if (place != std::string::npos) url.replace(place, mark.size(), text());
  }

  const std::string& folder() {
    if (folder_.empty()) {
      std::string name = (std::filesystem::temp_directory_path() / "tiercel-store-XXXXXX").string();
      EXPECT_NE(::mkdtemp(name.data()), nullptr);
      folder_ = name;
    }
    return folder_;
  }
  std::string folder_;
  // One for all tests of this process; it takes longer to start than most of them take.
  static testing::MooncakePool* shared_pool() {
    static const std::unique_ptr<testing::MooncakePool> kPool = testing::MooncakePool::start();
    return kPool.get();
  }

  testing::MooncakePool* pool_ = nullptr;
};

}  // namespace tiercel
