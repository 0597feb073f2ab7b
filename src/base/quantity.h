// SPDX-License-Identifier: Apache-2.0
//
// Sizes and durations as people write them: 8GiB, 50ms.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tiercel/clock.h"
#include "tiercel/status.h"

namespace tiercel {

// Both: digits (`_` allowed between them), at most 9 more after a point, at most one space, a unit;
// the case of the unit counts. What the fraction makes smaller than one byte or nanosecond is cut
// off. kInvalid with the text and what is wrong with it.

// 4096, 64KiB, 1.5GB. Units B KB MB GB TB KiB MiB GiB TiB; none means B.
Result<uint64_t> parse_bytes(std::string_view text);
// 200us, 50ms, 1.5s. Units ns us ms s min h; only 0 needs none. Never negative.
Result<Duration> parse_duration(std::string_view text);

// For people, rounded to two places: "64 KiB", "1.5 GiB"; "50 ms", "-1.25 s".
std::string format_bytes(uint64_t bytes);
std::string format_duration(Duration duration);

// Exact, in the largest unit that divides, as the parsers read it back: "64KiB", "1TB", "4097B";
// "50ms".
std::string exact_bytes(uint64_t bytes);
std::string exact_duration(Duration duration);

// `text` from outside for a message: cut to 64 bytes, and all but printable ASCII escaped, so that
// it cannot forge lines or break an encoding. quoted_text puts it in quotation marks. The same for
// a path or URL, whose end tells the most: cut to 4096.
std::string escaped_text(std::string_view text);
std::string quoted_text(std::string_view text);
std::string escaped_path(std::string_view path);
std::string quoted_path(std::string_view path);

}  // namespace tiercel
