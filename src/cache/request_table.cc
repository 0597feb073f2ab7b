// SPDX-License-Identifier: Apache-2.0
#include "cache/request_table.h"

#include "base/assert.h"

namespace tiercel {

RequestTable::RequestTable(uint32_t requests_max, uint32_t why_requests)
    : requests_max_(requests_max), ended_(why_requests) {
  by_id_.reserve(requests_max);
  ended_by_id_.reserve(why_requests);
}

Request* RequestTable::find(RequestId id) {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &requests_[found->second];
}

Request* RequestTable::find_or_create(RequestId id, TimePoint now) {
  if (Request* request = find(id)) return request;
  if (in_use_ == requests_max_) return nullptr;
  uint32_t index = 0;
  if (indexes_free_.empty()) {
    index = static_cast<uint32_t>(requests_.size());
    requests_.emplace_back();
    requests_.back().index = index;
  } else {
    index = indexes_free_.back();
    indexes_free_.pop_back();
  }
  Request& request = requests_[index];
  request.id = id;
  request.generation = ++last_generation_;
  request.in_use = true;
  request.living = true;
  request.last_call = now;
  request.why = WhyRecord{};
  request.why.request = id;
  request.why.generation = request.generation;
  by_id_.emplace(id, index);
  ++in_use_;
  return &request;
}

Request* RequestTable::at(uint32_t index, uint32_t generation) {
  if (index >= requests_.size()) return nullptr;
  Request& request = requests_[index];
  return request.in_use && request.generation == generation ? &request : nullptr;
}

void RequestTable::end_life(Request& request) {
  request.living = false;
  by_id_.erase(request.id);
}

void RequestTable::recycle(Request& request) {
  TIERCEL_ASSERT(request.in_use && !request.living && request.hold_count == 0,
                 "only an ended request without holds is recycled");
  WhyRecord& slot = ended_[ended_next_];
  if (const auto old = ended_by_id_.find(slot.request);
      slot.generation != 0 && old != ended_by_id_.end() && old->second == ended_next_) {
    ended_by_id_.erase(old);
  }
  slot = request.why;
  ended_by_id_[request.id] = static_cast<uint32_t>(ended_next_);
  ended_next_ = (ended_next_ + 1) % ended_.size();

  // Vectors keep their memory for the next life.
  request.in_use = request.visited = false;
  request.keys.clear();
  request.loading = false;
  request.load_count = request.load_unsettled = 0;
  request.load_code = Code::kOk;
  request.load_states.clear();
  request.load_blocks.clear();
  request.load_ready.clear();
  request.load_queued = false;
  request.prefetching = request.prefetch_queued = false;
  request.prefetch_pending = 0;
  request.prefetch_code = Code::kOk;
  request.save_blocks.clear();
  request.committed_blocks = request.save_cursor = 0;
  request.save_queued = false;
  request.device_references = 0;
  request.device_notice = false;
  indexes_free_.push_back(request.index);
  --in_use_;
}

const WhyRecord* RequestTable::why(RequestId id) const {
  if (const auto found = by_id_.find(id); found != by_id_.end()) {
    return &requests_[found->second].why;
  }
  // A question that people ask, not a step of scheduling: looking through all lives is fine.
  const Request* latest = nullptr;
  for (const Request& request : requests_) {
    if (!request.in_use || request.id != id) continue;
    if (latest == nullptr || request.generation > latest->generation) latest = &request;
  }
  if (latest != nullptr) return &latest->why;
  if (const auto found = ended_by_id_.find(id); found != ended_by_id_.end()) {
    return &ended_[found->second];
  }
  return nullptr;
}

WhyRecord* RequestTable::why_of_life(RequestId id, uint32_t index, uint32_t generation) {
  if (Request* request = at(index, generation)) return &request->why;
  const auto found = ended_by_id_.find(id);
  if (found == ended_by_id_.end()) return nullptr;
  WhyRecord& record = ended_[found->second];
  return record.generation == generation ? &record : nullptr;
}

}  // namespace tiercel
