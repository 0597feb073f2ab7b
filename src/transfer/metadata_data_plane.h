// SPDX-License-Identifier: Apache-2.0
//
// MetadataDataPlane: a data plane that moves nothing. Every operation succeeds at the next poll; a
// set of keys stands for the store. For replay of policies, where bytes do not matter.
#pragma once

#include <cstdint>
#include <memory>

#include "tiercel/transfer.h"

namespace tiercel {

struct MetadataDataPlaneOptions {
  uint32_t rank_count = 1;
  bool with_store = false;  // without: store operations are `unavailable`
  uint32_t ops_in_flight_max = 65536;
};
std::unique_ptr<DataPlane> make_metadata_data_plane(const MetadataDataPlaneOptions& options);

}  // namespace tiercel
