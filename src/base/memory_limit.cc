// SPDX-License-Identifier: Apache-2.0
#include "base/memory_limit.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <string_view>

namespace tiercel {
namespace {

// How the two versions of cgroups name the same things.
struct CgroupFiles {
  const char* mount;
  const char* limit;
  const char* usage;
  std::string_view inactive_file;
};
constexpr CgroupFiles kVersion2 = {"/sys/fs/cgroup", "memory.max", "memory.current",
                                   "inactive_file"};
constexpr CgroupFiles kVersion1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                   "memory.usage_in_bytes", "total_inactive_file"};

// Version 1 writes "no limit" as the greatest page-aligned number; nothing this large is one.
constexpr uint64_t kNoLimit = uint64_t{1} << 62;

std::optional<uint64_t> parse_number(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return number;
}

// Nothing if the file cannot be read or holds no number, such as "max".
std::optional<uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return parse_number(line);
}

// The number after `name` and its separators, in a file of lines such as "MemAvailable:  12 kB".
std::optional<uint64_t> read_named_number(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::string_view rest = line;
    if (!rest.starts_with(name)) continue;
    rest.remove_prefix(name.size());
    const size_t digits = rest.find_first_not_of(": \t");
    if (digits == 0 || digits == std::string_view::npos) continue;
    return parse_number(rest.substr(digits));
  }
  return std::nullopt;
}

void lower(MemoryLimit& limit, uint64_t bytes, const std::string& source) {
  if (!limit.source.empty() && bytes >= limit.bytes) return;
  limit.bytes = bytes;
  limit.source = source;
}

// A cgroup and all its ancestors, up to the mount: in a container without a cgroup namespace the
// path is that of the host and does not exist below the mount, but the mount itself shows the
// container's.
void lower_by_cgroup(MemoryLimit& limit, const std::string& root, const CgroupFiles& files,
                     std::string path) {
  // A process that stands outside of its cgroup namespace is shown a path that leaves the mount.
  if (path.find("/..") != std::string::npos) path.clear();
  while (true) {
    while (path.ends_with('/')) path.pop_back();
    const std::string folder = root + files.mount + path + "/";
    const std::optional<uint64_t> allowed = read_number(folder + files.limit);
    if (allowed && *allowed < kNoLimit) {
      const uint64_t used = read_number(folder + files.usage).value_or(0);
      const uint64_t cache =
          read_named_number(folder + "memory.stat", files.inactive_file).value_or(0);
      const uint64_t taken = used > cache ? used - cache : 0;
      lower(limit, *allowed > taken ? *allowed - taken : 0,
            "cgroup limit " + (path.empty() ? "/" : path));
    }
    if (path.empty()) return;
    const size_t slash = path.rfind('/');
    path.resize(slash == std::string::npos ? 0 : slash);
  }
}

bool has_controller(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == name) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

}  // namespace

MemoryLimit available_memory_under(const std::string& root) {
  MemoryLimit limit;
  if (const auto kib = read_named_number(root + "/proc/meminfo", "MemAvailable"); kib) {
    lower(limit, *kib * 1024, "available memory");
  }
  // Lines are "hierarchy:controllers:path"; version 2 has hierarchy 0 and no controllers.
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const size_t first = line.find(':');
    if (first == std::string::npos) continue;
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers =
        std::string_view(line).substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      lower_by_cgroup(limit, root, kVersion2, path);
    } else if (has_controller(controllers, "memory")) {
      lower_by_cgroup(limit, root, kVersion1, path);
    }
  }
  return limit;
}

MemoryLimit available_memory() { return available_memory_under(""); }

}  // namespace tiercel
