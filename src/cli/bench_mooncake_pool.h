// SPDX-License-Identifier: Apache-2.0
//
// What stands around the `mooncake` subject: the pool that it measures on, and the raw client that
// it is held against.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tiercel/status.h"

#include "cli/line_process.h"
#include "store/registry.h"

namespace tiercel {

// What cmake puts into the tool: bench_mooncake_client.py, and the Python that has the package
// unless a URL names another.
extern const std::string_view kMooncakeClientProgram;
extern const std::string_view kMooncakePython;

// What a `mooncake:` URL says. kInvalid for any other, and with something in front.
Result<StoreUrl> read_mooncake_url(const std::string& url, const Clock& clock);

// A pool that is there already, or one of the run's own, gone with this object.
class BenchPool {
 public:
  // `given` is a URL, or the path of scripts/mooncake-dev, which is asked for a pool then.
  static Result<std::unique_ptr<BenchPool>> open(const std::string& given);

  const std::string& url() const { return url_; }
  // Whether command() may do harm to it.
  bool is_own() const { return process_ != nullptr; }
  // "kill master" and others: see COMMANDS in scripts/mooncake-dev.
  Status command(const std::string& line);

 private:
  BenchPool(std::string url, std::unique_ptr<LineProcess> process)
      : url_(std::move(url)), process_(std::move(process)) {}

  const std::string url_;
  const std::unique_ptr<LineProcess> process_;  // null: the pool is somebody else's
};

// Mooncake's Python client in a process of its own, with memory of its own.
class RawMooncakeClient {
 public:
  // `bytes` is the longest batch; keys begin with `prefix`. kUnavailable with its own words if it
  // cannot be set up.
  static Result<std::unique_ptr<RawMooncakeClient>> start(const StoreUrl& url, uint64_t bytes,
                                                          const std::string& prefix);

  // Seconds that one call of the client takes for `count` objects of `object_bytes`.
  Result<double> put(uint64_t object_bytes, uint32_t count);
  Result<double> get(uint64_t object_bytes, uint32_t count);
  Status remove(uint64_t object_bytes, uint32_t count);

 private:
  explicit RawMooncakeClient(std::unique_ptr<LineProcess> process) : process_(std::move(process)) {}
  Result<double> call(std::string_view verb, uint64_t object_bytes, uint32_t count);

  const std::unique_ptr<LineProcess> process_;
};

}  // namespace tiercel
