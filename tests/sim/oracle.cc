// SPDX-License-Identifier: Apache-2.0
#include "oracle.h"

#include <algorithm>
#include <cstring>

namespace tiercel::sim {
namespace {

void fill(std::span<std::byte> out, uint64_t state) {
  for (size_t offset = 0; offset < out.size(); offset += sizeof(uint64_t)) {
    const uint64_t word = mix(++state);
    std::memcpy(out.data() + offset, &word, std::min(sizeof(word), out.size() - offset));
  }
}

}  // namespace

uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

void fill_oracle(std::span<std::byte> out, const BlockKey& key, GroupId group, uint32_t rank,
                 uint64_t weights) {
  uint64_t words[4];
  std::memcpy(words, key.bytes.data(), sizeof(words));
  uint64_t state = mix(weights) + group.value() * 64u + rank;
  for (const uint64_t word : words) state = mix(state ^ word);
  fill(out, state);
}

void fill_garbage(std::span<std::byte> out, uint64_t seed) {
  fill(out, mix(seed ^ 0x6761726261676521u));
}

}  // namespace tiercel::sim
