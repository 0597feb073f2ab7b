// SPDX-License-Identifier: Apache-2.0
//
// A data plane that does nothing by itself: tests look at what was submitted and say what
// completes, when, on which rank and how.
#pragma once

#include <algorithm>
#include <deque>
#include <vector>

#include "tiercel/transfer.h"

namespace tiercel {

class FakeDataPlane final : public DataPlane {
 public:
  explicit FakeDataPlane(uint32_t ranks = 1, size_t capacity = 4096)
      : ranks_(ranks), capacity_(capacity) {}

  uint32_t rank_count() const override { return ranks_; }
  size_t submit_capacity() const override {
    return closed_ ? 0 : capacity_ - std::min(capacity_, open.size());
  }
  bool submit(std::span<const BlockOp> ops) override {
    if (closed_ || ops.size() > submit_capacity()) return false;
    for (const BlockOp& op : ops) {
      all.push_back(op);
      for (uint32_t rank = 0; rank < ranks_; ++rank) {
        if (concerns(op, rank)) open.push_back({op, rank});
      }
    }
    return true;
  }
  size_t poll(std::span<Completion> out) override {
    size_t count = 0;
    while (count < out.size() && !done_.empty()) {
      out[count++] = done_.front();
      done_.pop_front();
    }
    return count;
  }
  int completion_fd() const override { return -1; }
  RankStats stats(uint32_t rank) const override {
    return rank < rank_stats.size() ? rank_stats[rank] : RankStats{};
  }
  ReasonText store_reason(uint32_t rank) const override {
    return rank < store_reasons.size() ? ReasonText::of(store_reasons[rank]) : ReasonText();
  }
  uint64_t memory_epoch(uint32_t rank) const override {
    return rank < memory_epochs.size() ? memory_epochs[rank] : 0;
  }
  Status close(TimePoint) override {
    closed_ = true;
    return {};
  }

  std::vector<RankStats> rank_stats;  // what stats() says; nothing beyond
  std::vector<std::string> store_reasons;
  std::vector<uint64_t> memory_epochs;  // what memory_epoch() says; 0 beyond

  struct Open {
    BlockOp op;
    uint32_t rank;
  };
  std::vector<Open> open;    // submitted and not completed
  std::vector<BlockOp> all;  // everything ever submitted

  size_t count(OpKind kind) const {
    return static_cast<size_t>(
        std::count_if(all.begin(), all.end(), [&](const BlockOp& op) { return op.kind == kind; }));
  }
  size_t open_count(OpKind kind) const {
    return static_cast<size_t>(std::count_if(
        open.begin(), open.end(), [&](const Open& entry) { return entry.op.kind == kind; }));
  }

  // Completes one open entry.
  void complete(size_t index, Code code = Code::kOk) {
    const Open entry = open[index];
    open.erase(open.begin() + static_cast<ptrdiff_t>(index));
    raw(Completion{entry.op.job, entry.op.item, static_cast<uint16_t>(entry.rank), code, 0});
  }
  // Completes everything of a kind for which code_of(op, rank) is given; all of it by default ok.
  template <typename CodeOf>
  size_t complete_all(OpKind kind, CodeOf&& code_of) {
    size_t completed = 0;
    for (size_t i = 0; i < open.size();) {
      if (open[i].op.kind != kind) {
        ++i;
        continue;
      }
      complete(i, code_of(open[i].op, open[i].rank));
      ++completed;
    }
    return completed;
  }
  size_t complete_all(OpKind kind, Code code = Code::kOk) {
    return complete_all(kind, [&](const BlockOp&, uint32_t) { return code; });
  }
  // What has ended well on the rank and was not polled yet has ended in another way.
  void spoil(uint32_t rank, Code code) {
    for (Completion& completion : done_) {
      if (completion.rank == rank && completion.code == Code::kOk) completion.code = code;
    }
  }
  bool all_polled() const { return done_.empty(); }
  // A completion that nobody may have asked for.
  void raw(const Completion& completion) { done_.push_back(completion); }

 private:
  const uint32_t ranks_;
  const size_t capacity_;
  bool closed_ = false;
  std::deque<Completion> done_;
};

}  // namespace tiercel
