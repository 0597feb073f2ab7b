// SPDX-License-Identifier: Apache-2.0
//
// Hexadecimal digits of keys. Written in lower case only, so that one key has one text.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace tiercel {

// Writes two lower-case digits per byte; returns the place behind them.
char* write_hex(std::span<const std::byte> bytes, char* out);

// Value of one digit of either case; nothing for another character.
std::optional<unsigned> hex_digit_value(char digit);

// A digit as write_hex writes it.
bool is_lower_hex_digit(char digit);

}  // namespace tiercel
