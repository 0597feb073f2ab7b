// SPDX-License-Identifier: Apache-2.0
//
// CRC32C (Castagnoli), the checksum of payloads and frames. Measured beside XXH3-128 on whole
// blocks both run far above memory bandwidth; CRC32C can be continued piece by piece while a piece
// is still in a near cache, which is what a copy with a checksum needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tiercel {

// CRC32C of `bytes`, continuing from `previous` (0 at the start): crc32c(b, crc32c(a)) is the
// checksum of a followed by b. The kernel is chosen for the processor at run time.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t previous = 0);

// The same value without processor-specific instructions.
uint32_t crc32c_portable(std::span<const std::byte> bytes, uint32_t previous = 0);

// Copies `source` to `target` (equal sizes, no overlap) and returns the CRC32C of what now stands
// in `target`, continuing from `previous`.
uint32_t copy_with_crc32c(std::span<const std::byte> source, std::span<std::byte> target,
                          uint32_t previous = 0);

}  // namespace tiercel
