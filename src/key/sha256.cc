// SPDX-License-Identifier: Apache-2.0

// The low-level calls are deprecated, not slower or weaker: OpenSSL wants new code to go through
// providers, whose look-ups would double the cost of a block key.
#define OPENSSL_SUPPRESS_DEPRECATED

#include "key/sha256.h"

#include <cstdint>
#include <cstring>
#include <new>

#include <openssl/sha.h>

#include "base/assert.h"
#include "key/little_endian.h"
#include "key/words.h"

namespace tiercel {
namespace {

unsigned char* raw(Sha256Digest& digest) { return reinterpret_cast<unsigned char*>(digest.data()); }

}  // namespace

Sha256Digest sha256(std::span<const std::byte> input) {
  SHA256_CTX context;
  SHA256_Init(&context);
  SHA256_Update(&context, input.data(), input.size());
  Sha256Digest digest;
  SHA256_Final(raw(digest), &context);
  return digest;
}

Sha256Digest sha256_padded_in_place(std::span<std::byte> buffer, size_t input_bytes) {
  TIERCEL_ASSERT(input_bytes + kSha256PaddingBytesMax <= buffer.size(),
                 "the buffer has room for the padding");
  constexpr size_t kLengthBytes = sizeof(uint64_t);
  const size_t padded_bytes =
      (input_bytes + kSha256PaddingBytesMax) & ~(kSha256CompressionBytes - 1);
  std::memset(&buffer[input_bytes], 0, kSha256PaddingBytesMax);  // a fixed size needs no call
  buffer[input_bytes] = std::byte{0x80};
  store_little_endian(__builtin_bswap64(uint64_t{input_bytes} * 8),
                      &buffer[padded_bytes - kLengthBytes]);

  SHA256_CTX context;
  SHA256_Init(&context);
  SHA256_Update(&context, buffer.data(),
                padded_bytes);  // whole compressions: read where they stand
  Sha256Digest digest;
  for (size_t half = 0; half < 2; ++half) {
    store_words(swap_bytes(load_words(context.h + 4 * half)), digest.data() + 16 * half);
  }
  return digest;
}

void Sha256::start() {
  static_assert(sizeof(SHA256_CTX) <= sizeof(state_) && alignof(SHA256_CTX) <= 8);
  SHA256_Init(new (state_.data()) SHA256_CTX);
}

void Sha256::update(std::span<const std::byte> input) {
  SHA256_Update(std::launder(reinterpret_cast<SHA256_CTX*>(state_.data())), input.data(),
                input.size());
}

Sha256Digest Sha256::finish() {
  Sha256Digest digest;
  SHA256_Final(raw(digest), std::launder(reinterpret_cast<SHA256_CTX*>(state_.data())));
  return digest;
}

}  // namespace tiercel
