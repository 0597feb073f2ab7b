// SPDX-License-Identifier: Apache-2.0
//
// Loads and stores of the numbers in Tiercel's encodings, which are all little-endian. Tiercel runs
// on little-endian machines only, so a number in memory already has the bytes of its encoding; that
// also lets a span of token ids be hashed where it stands.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstring>

namespace tiercel {

static_assert(std::endian::native == std::endian::little,
              "the encodings are read and written in place on little-endian machines");

// `out` has room for the number; no alignment is needed.
template <std::integral Number>
void store_little_endian(Number value, std::byte* out) {
  std::memcpy(out, &value, sizeof(value));
}

template <std::integral Number>
Number load_little_endian(const std::byte* in) {
  Number value;
  std::memcpy(&value, in, sizeof(value));
  return value;
}

}  // namespace tiercel
