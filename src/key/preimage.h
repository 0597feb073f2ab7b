// SPDX-License-Identifier: Apache-2.0
//
// Preimage: collects the parts of what is to be hashed, on the stack. What fits the buffer is
// hashed in one call; longer input is streamed through, large parts without being copied. Never
// allocates.
//
// Every part is either of fixed size or carries its length, so that different parts never make the
// same bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>

#include "base/assert.h"
#include "key/domain_tag.h"
#include "key/little_endian.h"
#include "key/sha256.h"
#include "key/words.h"

namespace tiercel {

class Preimage {
 public:
  explicit Preimage(DomainTag tag) { put_raw(tag.text()); }

  // Tag, then digest, in whole registers (words.h).
  Preimage(DomainTag tag, const Sha256Digest& digest) {
    uint32_t tag_word;
    std::memcpy(&tag_word, tag.text().data(), DomainTag::kBytes);
    const Words tag_words = {tag_word, 0, 0, 0};
    const Words left = load_words(digest.data());
    const Words right = load_words(digest.data() + 16);
    store_words(__builtin_shufflevector(tag_words, left, 0, 4, 5, 6), &buffer_[0]);
    store_words(__builtin_shufflevector(left, right, 3, 4, 5, 6), &buffer_[16]);
    store_little_endian(right[3], &buffer_[32]);
    used_ = DomainTag::kBytes + digest.size();
  }

  // Only for parts whose size is fixed, or written before them.
  void put_bytes(std::span<const std::byte> bytes) {
    if (bytes.size() > kBufferBytes - used_) {
      flush();
      if (bytes.size() > kBufferBytes) {
        hash_.update(bytes);
        return;
      }
    }
    if (bytes.empty()) return;  // an empty span may have no address
    std::memcpy(buffer_.data() + used_, bytes.data(), bytes.size());
    used_ += bytes.size();
  }

  template <std::integral Number>
  void put_number(Number value) {
    std::array<std::byte, sizeof(Number)> bytes;
    store_little_endian(value, bytes.data());
    put_bytes(bytes);
  }

  // A count or length. Four bytes hold every one that a process can meet in this place.
  void put_count(size_t count) {
    TIERCEL_ASSERT(count <= std::numeric_limits<uint32_t>::max(),
                   "a hashed part has fewer than 2^32 entries");
    put_number(static_cast<uint32_t>(count));
  }

  // Length, then bytes.
  void put_text(std::string_view text) {
    put_count(text.size());
    put_raw(text);
  }

  // Ends the preimage.
  Sha256Digest digest() {
    if (!streaming_) return sha256_padded_in_place(buffer_, used_);
    flush();
    return hash_.finish();
  }

 private:
  void put_raw(std::string_view text) { put_bytes(std::as_bytes(std::span(text))); }

  [[gnu::noinline]] void flush() {  // rare, and small callers stay small
    if (!streaming_) hash_.start();
    streaming_ = true;
    hash_.update(std::span(buffer_).first(used_));
    used_ = 0;
  }

  static constexpr size_t kBufferBytes = 512;

  // Only the first used_ bytes mean anything.
  alignas(16) std::array<std::byte, kBufferBytes + kSha256PaddingBytesMax> buffer_;
  size_t used_ = 0;
  bool streaming_ = false;
  Sha256 hash_;  // started once streaming_
};

}  // namespace tiercel
