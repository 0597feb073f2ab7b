// SPDX-License-Identifier: Apache-2.0
//
// SHA-256, the only hash behind namespaces and keys. OpenSSL stays behind sha256.cc, which uses its
// low-level calls: the generic interface costs as much again per call, and a block key is one call.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace tiercel {

using Sha256Digest = std::array<std::byte, 32>;

// One call for input that lies in one piece.
Sha256Digest sha256(std::span<const std::byte> input);

// SHA-256 ends its input with 0x80, zeros and the length, to a multiple of 64 bytes.
inline constexpr size_t kSha256CompressionBytes = 64;
inline constexpr size_t kSha256PaddingBytesMax = kSha256CompressionBytes + 8;

// Digest of the first `input_bytes` of `buffer`. The kSha256PaddingBytesMax bytes behind them must
// be there too and are overwritten. Cheaper than sha256(): nothing is copied into OpenSSL's context
// first, and the digest can be read at once (words.h).
Sha256Digest sha256_padded_in_place(std::span<std::byte> buffer, size_t input_bytes);

// Input in pieces: start(), update() as often as needed, finish(). No allocation.
class Sha256 {
 public:
  void start();
  void update(std::span<const std::byte> input);
  Sha256Digest finish();

 private:
  alignas(8) std::array<std::byte, 112> state_;  // OpenSSL's context; left raw until start()
};

}  // namespace tiercel
