// SPDX-License-Identifier: Apache-2.0
//
// What to say when a request of a replay makes no progress any more: who is to blame, as far as can
// be told, and what to do.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tiercel/status.h"

#include "cli/replay_options.h"
#include "transfer/process/process_data_plane.h"

namespace tiercel {

// kTimeout: no end of `what` of the request of that line within options.patience. `ranks`: those in
// processes, in order of rank; none if they are threads.
Error out_of_patience(uint64_t line, const std::string& what, const ReplayOptions& options,
                      std::span<const RankStatus> ranks);

}  // namespace tiercel
