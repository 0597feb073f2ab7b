// SPDX-License-Identifier: Apache-2.0
#include "cache/job_table.h"

#include "base/assert.h"

namespace tiercel {
namespace {

int severity(Code code) {
  if (code == Code::kOk) return 0;
  return code == Code::kNotFound ? 1 : 2;
}

}  // namespace

JobTable::JobTable(uint32_t jobs_max, uint32_t rank_count)
    : jobs_max_(jobs_max),
      all_ranks_(rank_count >= 64 ? UINT64_MAX : (uint64_t{1} << rank_count) - 1) {}

Job* JobTable::start(OpKind kind, TimePoint deadline, uint32_t request,
                     uint32_t request_generation) {
  if (in_flight_ == jobs_max_) return nullptr;
  uint32_t index = 0;
  if (free_.empty()) {
    index = static_cast<uint32_t>(jobs_.size());
    jobs_.emplace_back();
    generations_.push_back(0);
  } else {
    index = free_.back();
    free_.pop_back();
  }
  Job& job = jobs_[index];
  job.id = JobId((uint64_t{++generations_[index]} << 32) | index);
  job.kind = kind;
  job.live = true;
  job.deadline = deadline;
  job.request = request;
  job.request_generation = request_generation;
  job.items_open = 0;
  job.items_unsettled = 0;
  job.is_probe = false;
  job.items.clear();
  ++in_flight_;
  return &job;
}

void JobTable::cancel(Job& job) {
  job.items_open = 0;
  retire_if_closed(job);
}

void JobTable::opened(Job& job) {
  for (JobItem& item : job.items) {
    item.ranks_open = item.only_rank == kEveryRank ? all_ranks_ : uint64_t{1} << item.only_rank;
  }
  job.items_open = static_cast<uint32_t>(job.items.size());
  job.items_unsettled = job.items_open;
}

Job* JobTable::find(JobId id) {
  const uint32_t index = index_of(id);
  if (index >= jobs_.size() || !jobs_[index].live || jobs_[index].id != id) return nullptr;
  return &jobs_[index];
}

JobTable::Answer JobTable::merge(const Completion& completion) {
  Answer answer;
  Job* job = find(completion.job);
  if (job == nullptr || completion.item >= job->items.size() || completion.rank >= 64) {
    return answer;
  }
  JobItem& item = job->items[completion.item];
  const uint64_t rank_bit = uint64_t{1} << completion.rank;
  if ((item.ranks_open & rank_bit) == 0) return answer;  // answered before, or no such rank
  item.ranks_open &= ~rank_bit;
  if (severity(completion.code) > severity(item.code)) item.code = completion.code;
  answer.job = job;
  answer.item = &item;
  answer.all_ranks = item.ranks_open == 0;
  if (answer.all_ranks) --job->items_open;
  return answer;
}

void JobTable::fail_fills(Code code) {
  for (Job& job : jobs_) {
    if (!job.live || !fills_host(job.kind)) continue;
    for (JobItem& item : job.items) {
      if (severity(code) > severity(item.code)) item.code = code;
    }
  }
}

void JobTable::retire_if_closed(Job& job) {
  if (job.items_open != 0) return;
  TIERCEL_ASSERT(job.live, "a job is retired once");
  job.live = false;
  --in_flight_;
  free_.push_back(index_of(job.id));
}

}  // namespace tiercel
