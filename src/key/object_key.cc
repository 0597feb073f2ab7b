// SPDX-License-Identifier: Apache-2.0
//
//   v1-NNNNNNNNNNNNNNNN-GG-RRRRCCCC-KKKK…KKKK
//   |  |                |  |   |    block key, 64 digits
//   |  |                |  |   rank count, 0000 for `all`
//   |  |                |  rank
//   |  |                group
//   |  first 8 bytes of the namespace
//   format version

#include <algorithm>

#include "tiercel/key.h"

#include "key/hex.h"

namespace tiercel {
namespace {

constexpr size_t kNamespaceBytesShown = 8;
static_assert(kFormatVersion < 10, "the format version is one digit of a fixed-length name");
constexpr char kVersionDigit = static_cast<char>('0' + kFormatVersion);

// Any object key of this version: `x` stands for a digit, everything else for itself.
constexpr std::string_view kPattern =
    "v?-xxxxxxxxxxxxxxxx-xx-xxxxxxxx-"
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
static_assert(kPattern.size() == ObjectKey::kLength);

bool fits_pattern(char character, char pattern) {
  if (pattern == 'x') return is_lower_hex_digit(character);
  return character == (pattern == '?' ? kVersionDigit : pattern);
}

// Most significant digit first, as people write numbers.
char* write_hex_number(uint32_t number, size_t bytes, char* out) {
  for (size_t left = bytes; left > 0; --left) {
    const auto byte = static_cast<std::byte>(number >> (8 * (left - 1)));
    out = write_hex({&byte, 1}, out);
  }
  return out;
}

char* write_prefix(const Namespace& name_space, char* out) {
  *out++ = 'v';
  *out++ = kVersionDigit;
  *out++ = '-';
  out = write_hex(std::span(name_space.bytes).first<kNamespaceBytesShown>(), out);
  *out++ = '-';
  return out;
}

}  // namespace

ObjectKey::ObjectKey(const Namespace& name_space, GroupId group, Slice slice, const BlockKey& key) {
  char* out = write_prefix(name_space, text_.data());
  out = write_hex_number(group.value(), 1, out);
  *out++ = '-';
  out = write_hex_number(slice.rank, 2, out);
  out = write_hex_number(slice.rank_count, 2, out);
  *out++ = '-';
  write_hex(key.bytes, out);
}

Result<ObjectKey> ObjectKey::parse(std::string_view text) {
  if (text.size() != kLength) {
    return Error(Code::kInvalid, "object key has " + std::to_string(text.size()) +
                                     " characters; allowed: " + std::to_string(kLength));
  }
  const auto wrong = std::mismatch(text.begin(), text.end(), kPattern.begin(), fits_pattern).first;
  if (wrong != text.end()) {
    return Error(Code::kInvalid, "object key is wrong at position " +
                                     std::to_string(wrong - text.begin()) + "; allowed: v" +
                                     kVersionDigit +
                                     "-NAMESPACE-GROUP-SLICE-KEY in lower-case hexadecimal digits");
  }
  ObjectKey key;
  std::copy(text.begin(), text.end(), key.text_.begin());
  return key;
}

std::string object_key_prefix(const Namespace& name_space) {
  std::string prefix(4 + 2 * kNamespaceBytesShown, '\0');
  write_prefix(name_space, prefix.data());
  return prefix;
}

}  // namespace tiercel
