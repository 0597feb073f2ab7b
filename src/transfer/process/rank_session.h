// SPDX-License-Identifier: Apache-2.0
//
// The rank's side of the handshake, over a socket that is connected already: what RankSession::join
// and tiercel-rank have in common.
#pragma once

#include <memory>

#include "tiercel/rank.h"

#include "base/file_descriptor.h"

namespace tiercel {

// Says hello and makes everything that the welcome names; ready when it returns. Errors as
// RankSession::join, and the other side has been told.
Result<std::unique_ptr<RankSession>> open_rank_session(FileDescriptor socket, RankParts parts);

}  // namespace tiercel
