// SPDX-License-Identifier: Apache-2.0
#include "fuzz_target.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace tiercel::fuzz {

void require(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "broken: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

uint8_t Input::byte() {
  if (bytes_.empty()) return 0;
  const uint8_t value = bytes_.front();
  bytes_ = bytes_.subspan(1);
  return value;
}

uint16_t Input::u16() {
  const unsigned low = byte();
  return static_cast<uint16_t>(low | unsigned{byte()} << 8);
}

uint64_t Input::u64() {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 8) value |= uint64_t{byte()} << shift;
  return value;
}

void Input::fill(std::span<std::byte> out) {
  const size_t count = std::min(out.size(), bytes_.size());
  const auto given = std::as_bytes(bytes_.first(count));
  const auto end = std::copy(given.begin(), given.end(), out.begin());
  std::fill(end, out.end(), std::byte{0});
  bytes_ = bytes_.subspan(count);
}

std::string_view Input::rest() const {
  return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
}

}  // namespace tiercel::fuzz
