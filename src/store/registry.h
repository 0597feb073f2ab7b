// SPDX-License-Identifier: Apache-2.0
//
// StoreRegistry: from a URL to a Store.
//
// A store URL is `[wrapper+]…scheme:path?option=value&…`, such as `memory:`,
// `memory:pool-a?bytes=1GiB` or `faulty+memory:?fault_seed=7`. The scheme chooses the backend;
// wrappers stand in front of it, outermost first. Path, names and values may be percent-encoded;
// spaces and control characters must be. Every option is checked against the tables of the backend
// and its wrappers; an unknown one is refused with the nearest known name.
//
// A registry is an object, not a global: stores opened through one registry may share state (two
// `memory:pool-a` are the same pool), stores of two registries never do, so it cannot be copied.
//
// Threads: any thread; open() may be called by each rank for its own handle.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/store.h"

#include "base/option_table.h"

namespace tiercel {

class StoreRegistry;

// A parsed store URL, as a backend or a wrapper sees it.
struct StoreUrl {
  std::string text;      // as given, for messages
  std::string scheme;    // of the backend
  std::string path;      // between the scheme's colon and `?`, decoded
  OptionValues options;  // of whoever it is handed to: all of its own table, nothing else
};

struct StoreContext {
  const Clock& clock;  // outlives the store
};

struct StoreInfo {
  std::string scheme;   // lower-case word
  std::string summary;  // one line
  OptionTable options;  // by convention `bytes` bounds what the store holds
  std::function<Result<std::unique_ptr<Store>>(const StoreUrl&, const StoreContext&)> open;
  // What the conformance suite opens; empty: `scheme:`. `{temp}` stands for an empty folder of the
  // test's own, `{service}` for the address of a service that the test starts for the store.
  std::string conformance_url = {};
  // Where a store promises less than the others. counts_held: stats() know at once what the service
  // holds. replaces_whole: whoever looks while a put replaces an object sees either the old or the
  // new one; else perhaps none or, until the frame is verified, a mixture.
  bool counts_held = true;
  bool replaces_whole = true;
};

// A wrapper: a Store around a Store, chosen by `NAME+` in front of the scheme.
struct StoreWrapperInfo {
  std::string name;
  std::string summary;
  OptionTable options;  // stand in the same URL; names must not clash with those of any other
  std::function<Result<std::unique_ptr<Store>>(std::unique_ptr<Store> inner, const StoreUrl&,
                                               const StoreContext&)>
      wrap;
};

class StoreRegistry {
 public:
  StoreRegistry() = default;
  StoreRegistry(const StoreRegistry&) = delete;
  StoreRegistry& operator=(const StoreRegistry&) = delete;

  // Both assert on a malformed or taken name, on a clash of option names and on a missing function.
  void add(StoreInfo info);
  void add_wrapper(StoreWrapperInfo info);

  std::span<const StoreInfo> stores() const { return stores_; }
  std::span<const StoreWrapperInfo> wrappers() const { return wrappers_; }

  // kInvalid with the URL, what is wrong in it, and the schemes or options that exist. The wrapper
  // `outer_wrapper` is put in front, unless the URL has it; messages show the URL as it was given.
  Result<std::unique_ptr<Store>> open(std::string_view url, const StoreContext& context,
                                      std::string_view outer_wrapper = {}) const;

 private:
  std::vector<StoreInfo> stores_;
  std::vector<StoreWrapperInfo> wrappers_;
};

// Registers every backend and wrapper of this build (generated from the folders under src/store).
void register_all_stores(StoreRegistry& registry);

}  // namespace tiercel
