// SPDX-License-Identifier: Apache-2.0
#include "transfer/device_layout_check.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "transfer/run_lattice.h"

namespace tiercel {
namespace {

// A payload or an address is a file offset or a signed difference somewhere.
constexpr uint64_t kBytesMax = uint64_t{1} << 62;
// Comparisons of runs that may be spent on one group. Layouts whose parts have equal strides need
// a few for each pair of parts; only the strangest ones need more.
constexpr uint64_t kComparisonsMax = 20'000'000;

struct PartName {
  size_t group, layer, part;
};

std::string to_string(const PartName& name) {
  return "group " + std::to_string(name.group) + ", layer " + std::to_string(name.layer) +
         ", part " + std::to_string(name.part);
}

Error refuse(const PartName& name, const std::string& what, uint64_t value,
             const std::string& allowed) {
  return Error(Code::kInvalid, "device layout of " + to_string(name) + ": " + what + " is " +
                                   std::to_string(value) + "; allowed: " + allowed);
}

// a × b + c, or nullopt if that is too much.
std::optional<uint64_t> times_plus(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t product = 0;
  uint64_t sum = 0;
  if (__builtin_mul_overflow(a, b, &product) || __builtin_add_overflow(product, c, &sum) ||
      sum > kBytesMax) {
    return std::nullopt;
  }
  return sum;
}

struct NamedStep {
  const char* name;
  RunLattice::Step step;
};

// Where the runs of one part are, over all blocks.
Result<RunLattice> check_part(const DevicePart& part, uint32_t block_count, const PartName& name) {
  if (part.run_bytes == 0 || part.run_bytes > kBytesMax) {
    return refuse(name, "run_bytes", part.run_bytes, "1 to 2^62");
  }
  if (part.outer.count == 0) return refuse(name, "outer.count", 0, "at least 1");
  if (part.inner.count == 0) return refuse(name, "inner.count", 0, "at least 1");
  std::array<NamedStep, 3> steps = {{
      {"inner.stride_bytes", {part.inner.count, part.inner.stride_bytes}},
      {"outer.stride_bytes", {part.outer.count, part.outer.stride_bytes}},
      {"block_stride_bytes", {block_count, part.block_stride_bytes}},
  }};
  std::stable_sort(steps.begin(), steps.end(), [](const NamedStep& a, const NamedStep& b) {
    return a.step.stride < b.step.stride;
  });

  RunLattice lattice;
  lattice.run_bytes = part.run_bytes;
  uint64_t span = part.run_bytes;
  for (const NamedStep& named : steps) {
    if (named.step.count == 1) continue;
    if (named.step.stride < span) {
      return refuse(name, named.name, named.step.stride,
                    "at least " + std::to_string(span) +
                        ", the bytes from begin to end of what it steps over");
    }
    const auto longer = times_plus(named.step.count - 1, named.step.stride, span);
    if (!longer) return refuse(name, named.name, named.step.stride, "a sum below 2^62");
    span = *longer;
    lattice.steps.push_back(named.step);
  }
  std::reverse(lattice.steps.begin(), lattice.steps.end());

  const uint64_t memory_bytes = part.memory.size();
  if (part.offset_bytes > memory_bytes || span > memory_bytes - part.offset_bytes) {
    const auto needed = times_plus(1, span, std::min(part.offset_bytes, kBytesMax));
    return refuse(
        name, "the memory's length", memory_bytes,
        "at least " + std::to_string(needed.value_or(kBytesMax)) + ", where its last block ends");
  }
  const auto address = reinterpret_cast<uintptr_t>(part.memory.data());
  if (address > kBytesMax || memory_bytes > kBytesMax) {
    return refuse(name, "the memory's address", address, "up to 2^62");
  }
  lattice.begin = static_cast<int64_t>(address + part.offset_bytes);
  return lattice;
}

struct NamedLattice {
  PartName name;
  RunLattice lattice;
};

Status check_disjoint(std::vector<NamedLattice>& parts) {
  // Those that begin before the end of another stand right behind it in this order.
  std::stable_sort(parts.begin(), parts.end(), [](const NamedLattice& a, const NamedLattice& b) {
    return a.lattice.begin < b.lattice.begin;
  });
  uint64_t budget = kComparisonsMax;
  for (size_t i = 0; i < parts.size(); ++i) {
    const RunLattice& first = parts[i].lattice;
    for (size_t j = i + 1; j < parts.size(); ++j) {
      if (parts[j].lattice.begin - first.begin >= first.span()) break;
      switch (compare(first, parts[j].lattice, budget)) {
        case Overlap::kNone:
          break;
        case Overlap::kSome:
          return Error(Code::kInvalid, "device layout of " + to_string(parts[i].name) +
                                           " has bytes in common with " + to_string(parts[j].name) +
                                           "; allowed: only parts of different groups may share "
                                           "memory");
        case Overlap::kUnknown:
          return Error(Code::kInvalid, "device layout of " + to_string(parts[i].name) + " and " +
                                           to_string(parts[j].name) +
                                           ": strides differ so much that they cannot be shown "
                                           "apart; allowed: parts with equal strides, or apart in "
                                           "memory");
      }
    }
  }
  return {};
}

}  // namespace

Result<uint64_t> check_device_group(const DeviceGroup& group, size_t index) {
  const std::string where = "device layout of group " + std::to_string(index) + ": ";
  if (group.block_count == 0) {
    return Error(Code::kInvalid, where + "block_count is 0; allowed: at least 1");
  }
  if (group.layers.empty() || group.layers.size() > kLayerCountMax) {
    return Error(Code::kInvalid, where + std::to_string(group.layers.size()) +
                                     " layers; allowed: 1 to " + std::to_string(kLayerCountMax));
  }
  std::vector<NamedLattice> parts;
  uint64_t payload_bytes = 0;
  for (size_t l = 0; l < group.layers.size(); ++l) {
    const std::vector<DevicePart>& layer = group.layers[l].parts;
    if (layer.empty() || layer.size() > kLayerPartsMax) {
      return Error(Code::kInvalid, where + "layer " + std::to_string(l) + " has " +
                                       std::to_string(layer.size()) + " parts; allowed: 1 to " +
                                       std::to_string(kLayerPartsMax));
    }
    for (size_t p = 0; p < layer.size(); ++p) {
      const PartName name{index, l, p};
      TIERCEL_TRY_ASSIGN(RunLattice lattice, check_part(layer[p], group.block_count, name));
      // Within its memory, so the product is small enough.
      payload_bytes += layer[p].payload_bytes();
      if (payload_bytes > kBytesMax) {
        return refuse(name, "the payload up to here", payload_bytes, "up to 2^62 bytes");
      }
      parts.push_back({name, std::move(lattice)});
    }
  }
  TIERCEL_TRY(check_disjoint(parts));
  return payload_bytes;
}

}  // namespace tiercel
