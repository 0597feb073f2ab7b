// SPDX-License-Identifier: Apache-2.0
#include "store/mooncake/mooncake_options.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/quantity.h"
#include "store/registry.h"

namespace tiercel {
namespace {

constexpr double kHour = 3600;
constexpr double kMib = 1 << 20;
constexpr double kTib = 1024.0 * 1024 * kMib;
constexpr uint64_t kSegmentBytesMin = uint64_t{16} << 20;

bool is_port(std::string_view text) {
  uint32_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port >= 1 && port <= 65535;
}

Error refusal(const StoreUrl& url, const std::string& why) {
  return Error(Code::kInvalid, "store URL '" + escaped_path(url.text) + "': " + why);
}

// "[::1]", with a zone ("%eth0") or without. Whether it is anybody's address the resolver knows.
bool is_ipv6_in_brackets(std::string_view host) {
  if (host.size() < 2 || !host.starts_with('[') || !host.ends_with(']')) return false;
  const std::string_view inside = host.substr(1, host.size() - 2);
  const size_t zone = inside.find('%');
  if (zone != std::string_view::npos && zone + 1 == inside.size()) return false;
  const std::string_view address = inside.substr(0, zone);
  return address.find(':') != std::string_view::npos &&
         address.find_first_not_of("0123456789abcdefABCDEF:.") == std::string_view::npos &&
         inside.find_first_of("[]/ ") == std::string_view::npos;
}

bool is_host(std::string_view host) {
  if (host.find_first_of("[]:") != std::string_view::npos) return is_ipv6_in_brackets(host);
  return !host.empty() && host.find_first_of("/ @") == std::string_view::npos;
}

// "//host:port" or "host:port".
Result<std::string> read_master(const StoreUrl& url) {
  std::string_view master = url.path;
  if (master.starts_with("//")) master.remove_prefix(2);
  while (master.ends_with('/')) master.remove_suffix(1);
  const std::string shown = "the master '" + escaped_path(std::string(master)) + "'";
  // Mooncake's clients know etcd://, redis:// and k8s:// and then look for the master themselves.
  if (master.find("://") != std::string_view::npos) {
    return refusal(url, shown +
                            " names a place where masters with high availability are looked up, "
                            "which is not supported; allowed: host:port of a master, or of a name "
                            "or address that follows the one that leads");
  }
  const size_t colon = master.rfind(':');
  if (colon == std::string_view::npos || !is_port(master.substr(colon + 1)) ||
      !is_host(master.substr(0, colon))) {
    return refusal(url, shown +
                            " is not of the form host:port, such as mooncake://10.0.0.1:50051 or "
                            "mooncake://[2001:db8::1]:50051");
  }
  return std::string(master);
}

// What goes to Mooncake in lines of text. A name in other letters is written as xn--….
bool is_line_of_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

std::string text_or_empty(const OptionValues& options, std::string_view name) {
  return options.is_set(name) ? options.get_string(name) : std::string();
}

}  // namespace

OptionTable mooncake_option_table() {
  OptionTable table;
  table.add(
      make_option("python", OptionType::kString,
                  "Absolute path of the Python that has the package; without it the place where "
                  "scripts/install-deps --for mooncake puts it",
                  ""));
  table.add(make_option("host", OptionType::kString,
                        "Name or address by which the other hosts reach this one; without it the "
                        "address from which the master is reached",
                        ""));
  table.add(
      make_option("metadata", OptionType::kString, "Mooncake's metadata server", "P2PHANDSHAKE"));
  table.add(make_option("protocol", OptionType::kString,
                        "Mooncake's transport, such as tcp or rdma", "tcp"));
  table.add(make_option("device", OptionType::kString,
                        "Network devices of that transport, such as mlx5_0,mlx5_1", ""));
  table.add(make_option("replicas", OptionType::kInteger,
                        "Copies of each object, on different segments as far as there are any", "1",
                        1, 16));
  table.add(make_option("soft_pin", OptionType::kBool,
                        "Objects are evicted after those that are not pinned", "false"));
  table.add(make_option("connection_pool", OptionType::kBool,
                        "Mooncake keeps its TCP connections (MC_TCP_ENABLE_CONNECTION_POOL)",
                        "false"));
  table.add(make_option("segment", OptionType::kBytes,
                        "Memory of this node that is given to the pool, for each rank; 0 is none, "
                        "else at least 16MiB",
                        "0", 0, 16 * kTib));
  table.add(
      make_option("segment_socket", OptionType::kString,
                  "Unix socket at which that memory is offered to the other processes of this "
                  "node; without segment=, from which theirs is had",
                  ""));
  table.add(make_option("prefer_local", OptionType::kBool,
                        "Puts go to the segment of this node while it has room", "true"));
  table.add(make_option("threads", OptionType::kInteger,
                        "Batches that are with Mooncake at once; one is never a put", "4", 2, 32));
  table.add(make_option("buffer_bytes", OptionType::kBytes,
                        "Space for objects on their way from or to memory that cannot be shared; "
                        "the largest such object",
                        "64MiB", kMib, kTib));
  table.add(make_option("populate", OptionType::kBool,
                        "The pages of shared memory are provided when the sidecar starts", "true"));
  table.add(make_option("start_timeout", OptionType::kDuration,
                        "Longest time for the sidecar to start and to register the memory", "30s",
                        0.1, kHour));
  table.add(make_option("stuck_after", OptionType::kDuration,
                        "Beyond its deadline, how long a call may hold memory until the sidecar "
                        "is killed and started again",
                        "15s", 0.01, kHour));
  table.add(make_option("log", OptionType::kString,
                        "File to which the sidecar and Mooncake write what they have to say", ""));
  return table;
}

Result<MooncakeOptions> read_mooncake_options(const StoreUrl& url) {
  const OptionValues& given = url.options;
  MooncakeOptions options;
  TIERCEL_TRY_ASSIGN(options.master, read_master(url));
  options.python = text_or_empty(given, "python");
  if (options.python.empty()) options.python = default_mooncake_python();
  options.host = text_or_empty(given, "host");
  options.metadata = given.get_string("metadata");
  options.protocol = given.get_string("protocol");
  options.device = text_or_empty(given, "device");
  options.replicas = static_cast<uint32_t>(given.get_integer("replicas"));
  options.soft_pin = given.get_bool("soft_pin");
  options.connection_pool = given.get_bool("connection_pool");
  options.segment_bytes = static_cast<uint64_t>(given.get_integer("segment"));
  if (options.segment_bytes > 0 && options.segment_bytes < kSegmentBytesMin) {
    return Error(Code::kInvalid, "store URL '" + escaped_path(url.text) + "': segment is " +
                                     format_bytes(options.segment_bytes) +
                                     "; allowed: 0 (none) or " + format_bytes(kSegmentBytesMin) +
                                     " and more");
  }
  options.segment_socket = text_or_empty(given, "segment_socket");
  options.prefer_local = given.get_bool("prefer_local");
  options.threads = static_cast<uint32_t>(given.get_integer("threads"));
  options.buffer_bytes = static_cast<uint64_t>(given.get_integer("buffer_bytes"));
  options.populate = given.get_bool("populate");
  options.start_timeout = given.get_duration("start_timeout");
  options.stuck_after = given.get_duration("stuck_after");
  options.log_path = text_or_empty(given, "log");
  const std::pair<std::string_view, const std::string&> lines[] = {{"the master", options.master},
                                                                   {"host", options.host},
                                                                   {"metadata", options.metadata},
                                                                   {"protocol", options.protocol},
                                                                   {"device", options.device}};
  for (const auto& [name, text] : lines) {
    if (is_line_of_ascii(text)) continue;
    return refusal(url, std::string(name) + " '" + escaped_path(text) +
                            "' has a character that is not allowed; allowed: the printable ones of "
                            "ASCII");
  }
  // Ranks may have another folder or PATH than whoever writes the URL.
  if (!options.python.starts_with('/')) {
    return refusal(url, "python '" + escaped_path(options.python) +
                            "' is not an absolute path; allowed: one such as /usr/bin/python3; "
                            "without it the Python that scripts/install-deps --for mooncake "
                            "installs is used");
  }
  return options;
}

}  // namespace tiercel
