// SPDX-License-Identifier: Apache-2.0
//
// InProcessDataPlane: one thread per rank, joined to the control thread by two single-producer
// single-consumer rings per rank. Neither side ever waits for the other: a full ring is "busy", an
// idle worker sleeps on its eventfd and its store's, and is woken by a signal only if it sleeps.
//
// close(deadline) lets each rank end the copy that runs, cancels what waits and closes the store.
// It sleeps meanwhile, never beyond `deadline`. After kTimeout the store, and perhaps the thread,
// may still use the rank's memory: call close() again, or destroy the plane, which waits for each
// thread as long as its Store::close takes (that one keeps its own deadline) and then destroys the
// stores. Only then may the memory go.
//
// A process that is forked off has no part in the plane: there submit() takes nothing, poll()
// returns nothing, usable() and close() say why, and destruction leaves threads, stores and
// descriptors to the parent, which goes on.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tiercel/transfer.h"

#include "transfer/rank_worker.h"

namespace tiercel {

struct InProcessOptions {
  uint32_t ring_ops = 4096;  // operations in flight at most; power of two, 2 to 2^20
  // How long an idle rank looks for work before it sleeps: answers sooner, costs a processor.
  Duration spin{0};
};

// One worker per rank, in order of rank; at least one.
Result<std::unique_ptr<DataPlane>> make_in_process_data_plane(
    std::vector<std::unique_ptr<RankWorker>> workers, const Clock& clock,
    const InProcessOptions& options = {});

}  // namespace tiercel
