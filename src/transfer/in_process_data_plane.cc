// SPDX-License-Identifier: Apache-2.0
#include "transfer/in_process_data_plane.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/assert.h"
#include "base/fork_guard.h"
#include "transfer/rank_share.h"
#include "transfer/rank_thread.h"
#include "transfer/wake_flag.h"

namespace tiercel {
namespace {

class InProcessDataPlane final : public DataPlane {
 public:
  explicit InProcessDataPlane(EventFd completions) : announcement_(std::move(completions)) {}

  // All ranks are asked before any is waited for: one hung store must not lengthen the others' end.
  ~InProcessDataPlane() override {
    if (fork_guard_.is_inherited()) {
      // The threads are not here to be joined, and what the stores hold open is the parent's.
      // NOLINTNEXTLINE(bugprone-unused-return-value): left behind on purpose
      for (auto& rank : ranks_) static_cast<void>(rank.release());
      return;
    }
    for (const auto& rank : ranks_) rank->ask_to_close(TimePoint{});
  }

  Status start(std::vector<std::unique_ptr<RankWorker>> workers, const Clock& clock,
               const InProcessOptions& options) {
    for (std::unique_ptr<RankWorker>& worker : workers) {
      TIERCEL_TRY_ASSIGN(auto rank, RankThread::start(std::move(worker), options.ring_ops,
                                                      options.spin, clock, announcement_));
      ranks_.push_back(std::move(rank));
    }
    return {};
  }

  uint32_t rank_count() const override { return static_cast<uint32_t>(ranks_.size()); }

  Status usable() const override { return fork_guard_.check("the data plane"); }

  size_t submit_capacity() const override {
    if (closing_ || fork_guard_.is_inherited()) return 0;
    size_t capacity = ranks_.front()->capacity();
    for (const auto& rank : ranks_) capacity = std::min(capacity, rank->capacity());
    return capacity;
  }

  bool submit(std::span<const BlockOp> ops) override {
    if (closing_ || ops.size() > submit_capacity()) return false;
    if (ops.empty()) return true;
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      const std::span<const BlockOp> share = share_.of(ops, rank);
      if (!share.empty()) ranks_[rank]->submit(share);
    }
    return true;
  }

  size_t poll(std::span<Completion> out) override {
    // Not even a look: it would take a wake-up that is meant for the parent.
    if (fork_guard_.is_inherited()) return 0;
    announcement_.acknowledge();
    size_t count = 0;
    // Another rank comes first each time, so that small polls starve none.
    for (size_t i = 0; i < ranks_.size() && count < out.size(); ++i) {
      count += ranks_[(first_rank_ + i) % ranks_.size()]->poll(out.subspan(count));
    }
    first_rank_ = (first_rank_ + 1) % ranks_.size();
    if (count == out.size() && std::any_of(ranks_.begin(), ranks_.end(), [](const auto& rank) {
          return rank->has_completions();
        })) {
      announcement_.announce();
    }
    return count;
  }

  int completion_fd() const override { return announcement_.fd(); }

  RankStats stats(uint32_t rank) const override {
    TIERCEL_ASSERT(rank < ranks_.size(), "rank is out of range");
    return ranks_[rank]->stats();
  }

  ReasonText store_reason(uint32_t rank) const override {
    TIERCEL_ASSERT(rank < ranks_.size(), "rank is out of range");
    return ranks_[rank]->store_reason();
  }

  StoreCondition disk_condition(uint32_t rank) const override {
    TIERCEL_ASSERT(rank < ranks_.size(), "rank is out of range");
    return ranks_[rank]->disk_condition();
  }

  Status close(TimePoint deadline) override {
    TIERCEL_TRY(usable());
    closing_ = true;
    for (const auto& rank : ranks_) rank->ask_to_close(deadline);
    Status first_failure;
    for (const auto& rank : ranks_) {
      Status status = rank->wait_closed(deadline);
      if (!status && first_failure) first_failure = std::move(status);
    }
    return first_failure;
  }

 private:
  const ForkGuard fork_guard_;
  Announcement announcement_;
  std::vector<std::unique_ptr<RankThread>> ranks_;
  RankShare share_;
  size_t first_rank_ = 0;
  bool closing_ = false;
};

}  // namespace

Result<std::unique_ptr<DataPlane>> make_in_process_data_plane(
    std::vector<std::unique_ptr<RankWorker>> workers, const Clock& clock,
    const InProcessOptions& options) {
  TIERCEL_TRY(check_ring_ops(options.ring_ops));
  if (workers.empty() || workers.size() > kRankCountMax) {
    return Error(Code::kInvalid, std::to_string(workers.size()) + " rank workers; allowed: 1 to " +
                                     std::to_string(kRankCountMax));
  }
  for (size_t i = 0; i < workers.size(); ++i) {
    if (!workers[i]) return Error(Code::kInvalid, "rank worker " + std::to_string(i) + " is null");
    if (workers[i]->rank() != i) {
      return Error(Code::kInvalid, "rank worker " + std::to_string(i) + " is of rank " +
                                       std::to_string(workers[i]->rank()) +
                                       "; pass one worker per rank, in order of rank");
    }
  }
  TIERCEL_TRY_ASSIGN(EventFd completions, EventFd::create());
  auto plane = std::make_unique<InProcessDataPlane>(std::move(completions));
  TIERCEL_TRY(plane->start(std::move(workers), clock, options));
  return std::unique_ptr<DataPlane>(std::move(plane));
}

}  // namespace tiercel
