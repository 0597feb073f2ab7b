// SPDX-License-Identifier: Apache-2.0
#include "base/nearest_name.h"

#include <algorithm>
#include <cstdint>

namespace tiercel {
namespace {

// Outside text may be of any length; no name of ours is longer.
constexpr size_t kNameBytesMax = 128;

// Optimal string alignment: insert, delete, replace, or exchange two neighbours.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> two_before(b.size() + 1);
  std::vector<size_t> before(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) before[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = before[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({before[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], two_before[j - 2] + 1);
      }
    }
    two_before.swap(before);
    before.swap(row);
  }
  return before[b.size()];
}

}  // namespace

std::string_view nearest_name(std::string_view name,
                              const std::vector<std::string_view>& candidates) {
  std::string_view nearest;
  size_t nearest_distance = SIZE_MAX;
  if (name.size() > kNameBytesMax) return nearest;
  for (std::string_view candidate : candidates) {
    if (candidate.size() > kNameBytesMax) continue;
    const size_t distance = edit_distance(name, candidate);
    if (distance * 3 > std::max(name.size(), candidate.size())) continue;
    if (distance < nearest_distance) {
      nearest = candidate;
      nearest_distance = distance;
    }
  }
  return nearest;
}

}  // namespace tiercel
