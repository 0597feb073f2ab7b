// SPDX-License-Identifier: Apache-2.0
//
// Oracle bytes: what the KV of a block is in this simulation, computed from its key and the weights
// of the model alone; and garbage, which is what a device block holds before its KV has been
// computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tiercel/ids.h"
#include "tiercel/key.h"

namespace tiercel::sim {

uint64_t mix(uint64_t value);

// `weights`: their number; the namespace does not know it.
void fill_oracle(std::span<std::byte> out, const BlockKey& key, GroupId group, uint32_t rank,
                 uint64_t weights);
// Another pattern for every `seed`, and never that of a block.
void fill_garbage(std::span<std::byte> out, uint64_t seed);

}  // namespace tiercel::sim
