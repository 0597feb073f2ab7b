// SPDX-License-Identifier: Apache-2.0
//
// How much memory may still be had: so that an arena that would not fit is refused at start, and
// does not bring the out-of-memory killer later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tiercel {

// Memory that this process may still use: the smaller of what the machine has available and what
// its cgroup (v2 or v1, all ancestors) still allows. Page cache that the kernel gives back on
// demand counts as usable in both (for a cgroup: inactive_file). Where neither can be read:
// SIZE_MAX, empty source.
struct MemoryLimit {
  size_t bytes = SIZE_MAX;
  std::string source;  // "available memory" or "cgroup limit /path"
};
MemoryLimit available_memory();

// As available_memory, with the root of the file system replaced, for tests: reads
// <root>/proc/meminfo, <root>/proc/self/cgroup and <root>/sys/fs/cgroup/….
MemoryLimit available_memory_under(const std::string& root);

}  // namespace tiercel
