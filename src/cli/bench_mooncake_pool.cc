// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_mooncake_pool.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <utility>

#include <fmt/core.h>

#include "base/quantity.h"

namespace tiercel {

namespace {

constexpr Duration kLimit = std::chrono::seconds(120);
constexpr std::string_view kScheme = "mooncake:";

bool is_url(const std::string& given) { return given.find(kScheme) != std::string::npos; }

}  // namespace

Result<std::unique_ptr<BenchPool>> BenchPool::open(const std::string& given) {
  if (is_url(given)) return std::unique_ptr<BenchPool>(new BenchPool(given, nullptr));
  TIERCEL_TRY_ASSIGN(std::unique_ptr<LineProcess> process,
                     LineProcess::start({given, "serve", "--segment", "1GiB"}));
  Result<std::string> url = process->read_line(kLimit);
  if (!url || !is_url(*url)) {
    return Error(Code::kUnavailable,
                 fmt::format("mooncake is {}, which has started no pool: {}; allowed: a URL such "
                             "as mooncake://host:port, or the path of scripts/mooncake-dev",
                             quoted_path(given),
                             url ? escaped_text(*url) : std::string(url.error().message())));
  }
  return std::unique_ptr<BenchPool>(new BenchPool(*std::move(url), std::move(process)));
}

Status BenchPool::command(const std::string& line) {
  TIERCEL_TRY_ASSIGN(const std::string answer, process_->ask(line, kLimit));
  if (answer == "ok") return {};
  return Error(Code::kUnavailable,
               fmt::format("the pool answers {} to '{}'", quoted_path(answer), line));
}

Result<StoreUrl> read_mooncake_url(const std::string& url, const Clock& clock) {
  StoreRegistry registry;
  register_all_stores(registry);
  // Another one, whose only store shows what it was asked to open.
  StoreRegistry reader;
  std::optional<StoreUrl> read;
  for (const StoreInfo& store : registry.stores()) {
    if (store.scheme != "mooncake") continue;
    StoreInfo info = store;
    info.open = [&read](const StoreUrl& given,
                        const StoreContext&) -> Result<std::unique_ptr<Store>> {
      read = given;
      return std::unique_ptr<Store>();
    };
    reader.add(std::move(info));
  }
  TIERCEL_TRY(reader.open(url, {clock}));
  return *std::move(read);
}

Result<std::unique_ptr<RawMooncakeClient>> RawMooncakeClient::start(const StoreUrl& url,
                                                                    uint64_t bytes,
                                                                    const std::string& prefix) {
  const auto option = [&url](std::string_view name) {
    return url.options.is_set(name) ? url.options.get_string(name) : std::string();
  };
  std::string python = option("python");
  if (python.empty()) python = kMooncakePython;
  const size_t master = url.path.find_first_not_of('/');
  TIERCEL_TRY_ASSIGN(
      std::unique_ptr<LineProcess> process,
      LineProcess::start(
          {python, "-I", "-c", std::string(kMooncakeClientProgram),
           url.path.substr(std::min(master, url.path.size())), option("host"), option("metadata"),
           option("protocol"), option("device"),
           url.options.get_bool("connection_pool") ? "1" : "0", std::to_string(bytes), prefix},
          "/dev/null"));
  TIERCEL_TRY_ASSIGN(const std::string answer, process->read_line(kLimit));
  if (answer != "ready") {
    return Error(Code::kUnavailable, "Mooncake's own client: " + escaped_text(answer));
  }
  return std::unique_ptr<RawMooncakeClient>(new RawMooncakeClient(std::move(process)));
}

Result<double> RawMooncakeClient::put(uint64_t object_bytes, uint32_t count) {
  return call("put", object_bytes, count);
}

Result<double> RawMooncakeClient::get(uint64_t object_bytes, uint32_t count) {
  return call("get", object_bytes, count);
}

Status RawMooncakeClient::remove(uint64_t object_bytes, uint32_t count) {
  TIERCEL_TRY(call("remove", object_bytes, count));
  return {};
}

Result<double> RawMooncakeClient::call(std::string_view verb, uint64_t object_bytes,
                                       uint32_t count) {
  TIERCEL_TRY_ASSIGN(const std::string answer,
                     process_->ask(fmt::format("{} {} {}", verb, object_bytes, count), kLimit));
  double seconds = 0;
  const auto [end, error] = std::from_chars(answer.data(), answer.data() + answer.size(), seconds);
  if (error == std::errc() && end == answer.data() + answer.size()) return seconds;
  return Error(Code::kUnavailable, "Mooncake's own client: " + escaped_text(answer));
}

}  // namespace tiercel
