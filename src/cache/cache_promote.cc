// SPDX-License-Identifier: Apache-2.0
//
// Disk → host tier → device, for a load: what is in the host tier goes to the device at once, what
// is on disk follows as it comes.
#include <algorithm>

#include "cache/cache_impl.h"

namespace tiercel {

void Cache::Impl::promote_for_load(Request& request, uint32_t cut) {
  add_timer(TimerKind::kLoad, request.load_deadline, request.index, request.generation);
  Job* job = nullptr;
  Code stopped = Code::kOk;  // nothing behind a block that cannot come is of use
  for (uint32_t position = request.load_first; position < cut; ++position) {
    for (uint32_t group = 0; group < groups(); ++group) {
      const GroupId group_id(static_cast<uint8_t>(group));
      LoadState& state = load_state(request, group_id, position);
      if (state != LoadState::kFilling) continue;
      const NodeId node = view_.node(group, position);
      if (stopped == Code::kOk && !fills_.is_filling(node)) {
        if (job == nullptr) {
          job = jobs_.start(OpKind::kDiskGet, request.load_deadline, request.index,
                            request.generation);
        }
        const std::optional<SlotId> slot = job == nullptr ? std::nullopt : acquire_for(node);
        if (slot) {
          begin_fill(*job, node, *slot, request.keys[position], group_id, position);
        } else {
          stopped = job == nullptr ? Code::kBusy : Code::kNoSpace;
        }
      }
      if (stopped != Code::kOk) {
        state = LoadState::kFailed;
        request.load_code = stopped;
        continue;
      }
      fills_.wait(node, {.request = request.index,
                         .generation = request.generation,
                         .serial = request.load_serial,
                         .entry = static_cast<uint32_t>(&state - request.load_states.data()),
                         .is_load = true});
      ++request.load_unsettled;
      if (job != nullptr && job->items.size() == config_.job_blocks_max) {
        submit(*std::exchange(job, nullptr));
      }
    }
  }
  submit_or_cancel(job);
}

void Cache::Impl::end_fill_for_load(Request& request, NodeId node, uint32_t entry, bool arrived,
                                    Code code) {
  LoadState& state = request.load_states[entry];
  if (state != LoadState::kFilling) return;
  if (!arrived) {
    end_load_entry(request, state, code == Code::kOk ? Code::kCancelled : code);
    return;
  }
  if (protections_.load_holds) {
    hold_for(request, node, request.load_first + entry % request.load_count);
  }
  request.load_ready.push_back(entry);
  queue_load(request);
}

void Cache::Impl::fail_fills_of_load(Request& request, Code code) {
  request.load_ready.clear();
  for (LoadState& state : request.load_states) {
    if (request.loading && state == LoadState::kFilling) end_load_entry(request, state, code);
  }
}

void Cache::Impl::queue_load(Request& request) {
  if (request.load_queued) return;
  request.load_queued = true;
  load_queue_.push(QueuedRequest{request.index, request.generation});
}

void Cache::Impl::pump_loads() {
  while (!load_queue_.empty()) {
    const QueuedRequest queued = load_queue_[0];
    Request* request = requests_.at(queued.index, queued.generation);
    if (request != nullptr) {
      if (request->loading && !pump_load(*request)) return;  // no room: stays first in the queue
      request->load_queued = false;
    }
    load_queue_.pop(1);
  }
}

bool Cache::Impl::pump_load(Request& request) {
  size_t capacity = room(0);
  Job* job = nullptr;
  size_t taken = 0;
  for (; taken < request.load_ready.size() && capacity > 0; ++taken, --capacity) {
    const uint32_t entry = request.load_ready[taken];
    LoadState& state = request.load_states[entry];
    const uint32_t position = request.load_first + entry % request.load_count;
    const GroupId group(static_cast<uint8_t>(entry / request.load_count));
    // Looked up anew: while it waited for room it may have been lost with a rank's memory, found
    // bad, or cleared.
    const NodeId node = index_.find(request.keys[position], group);
    if (node == kNoNode || !host_.has(node)) {
      end_load_entry(request, state, Code::kUnavailable);
      continue;
    }
    if (job == nullptr) {
      job = jobs_.start(OpKind::kLoad, request.load_deadline, request.index, request.generation);
      if (job == nullptr) break;
    }
    state = LoadState::kPending;
    JobItem& item = add_item(*job, node, request.keys[position], group, position);
    item.slot = host_.slot(node);
    item.has_slot = true;
    item.device_block = request.load_blocks[entry];
    ++request.device_references;
    if (job->items.size() == config_.job_blocks_max) submit(*std::exchange(job, nullptr));
  }
  submit_or_cancel(job);
  request.load_ready.erase(request.load_ready.begin(),
                           request.load_ready.begin() +
                               static_cast<ptrdiff_t>(std::min(taken, request.load_ready.size())));
  return request.load_ready.empty();
}

}  // namespace tiercel
