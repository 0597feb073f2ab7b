// SPDX-License-Identifier: Apache-2.0
#include "cli/patience.h"

#include "base/quantity.h"

namespace tiercel {
namespace {

std::string ops_under_way(const RankStatus& status) {
  return std::to_string(status.ops) + (status.ops == 1 ? " operation" : " operations") +
         " under way";
}

std::string stopped_ranks(std::span<const RankStatus> ranks) {
  std::string text;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankStatus& status = ranks[rank];
    if (!status.is_stopped) continue;
    const std::string pid = std::to_string(status.pid);
    text += "; rank " + std::to_string(rank) + " (process " + pid + ") is stopped with " +
            ops_under_way(status) + ": let it go on (kill -CONT " + pid +
            "), or end it (kill -KILL " + pid + "), and it is started again";
  }
  return text;
}

std::string busy_ranks(std::span<const RankStatus> ranks) {
  std::string text;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankStatus& status = ranks[rank];
    if (status.ops == 0) continue;
    text += "; rank " + std::to_string(rank) + " (process " + std::to_string(status.pid) + ", " +
            std::string(to_string(status.state)) + ") has " + ops_under_way(status);
  }
  return text;
}

}  // namespace

Error out_of_patience(uint64_t line, const std::string& what, const ReplayOptions& options,
                      std::span<const RankStatus> ranks) {
  std::string message = "request of line " + std::to_string(line) + ": no end of " + what +
                        " within " + format_duration(options.patience);
  const bool has_deadline = options.deadline > Duration(0);
  if (const std::string stopped = stopped_ranks(ranks); !stopped.empty()) {
    message += stopped;
  } else if (has_deadline && options.deadline >= options.patience) {
    message += "; patience must be longer than the deadline, " + format_duration(options.deadline);
  } else if (has_deadline) {
    message += ": it goes on behind its deadline, " + format_duration(options.deadline) +
               ", and holds device blocks";
  } else if (!options.store.empty()) {
    message += "; a store that never answers needs a deadline";
  } else if (const std::string busy = busy_ranks(ranks); !busy.empty()) {
    message += busy;
  } else {
    message += "; give it more patience if the machine is slow";
  }
  return Error(Code::kTimeout, std::move(message));
}

}  // namespace tiercel
