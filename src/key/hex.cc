// SPDX-License-Identifier: Apache-2.0

#include "key/hex.h"

#include <string>

#include "tiercel/key.h"

namespace tiercel {

char* write_hex(std::span<const std::byte> bytes, char* out) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (const std::byte byte : bytes) {
    *out++ = kDigits[std::to_integer<unsigned>(byte) >> 4];
    *out++ = kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return out;
}

std::optional<unsigned> hex_digit_value(char digit) {
  if (digit >= '0' && digit <= '9') return static_cast<unsigned>(digit - '0');
  if (digit >= 'a' && digit <= 'f') return static_cast<unsigned>(digit - 'a' + 10);
  if (digit >= 'A' && digit <= 'F') return static_cast<unsigned>(digit - 'A' + 10);
  return std::nullopt;
}

bool is_lower_hex_digit(char digit) {
  return (digit >= '0' && digit <= '9') || (digit >= 'a' && digit <= 'f');
}

template <typename Tag>
std::string Digest<Tag>::hex() const {
  std::string text(2 * bytes.size(), '\0');
  write_hex(bytes, text.data());
  return text;
}

template <typename Tag>
Result<Digest<Tag>> Digest<Tag>::from_hex(std::string_view text) {
  Digest digest;
  if (text.size() != 2 * digest.bytes.size()) {
    return Error(Code::kInvalid, "digest has " + std::to_string(text.size()) +
                                     " characters; allowed: 64 hexadecimal digits");
  }
  for (size_t index = 0; index < digest.bytes.size(); ++index) {
    const auto high = hex_digit_value(text[2 * index]);
    const auto low = hex_digit_value(text[2 * index + 1]);
    if (!high || !low) {
      return Error(Code::kInvalid, "digest has no hexadecimal digit at position " +
                                       std::to_string(2 * index + (high ? 1 : 0)) +
                                       "; allowed: 0-9, a-f, A-F");
    }
    digest.bytes[index] = static_cast<std::byte>(*high << 4 | *low);
  }
  return digest;
}

template struct Digest<NamespaceTag>;
template struct Digest<RootKeyTag>;
template struct Digest<BlockKeyTag>;

}  // namespace tiercel
