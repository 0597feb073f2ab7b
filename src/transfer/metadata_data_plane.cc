// SPDX-License-Identifier: Apache-2.0
#include "transfer/metadata_data_plane.h"

#include <algorithm>
#include <vector>

#include "base/assert.h"
#include "transfer/fifo.h"
#include "transfer/stored_blocks.h"

namespace tiercel {
namespace {

// An operation whose completions have not all been polled.
struct Ended {
  JobId job;
  uint32_t item = 0;
  uint16_t only_rank = kEveryRank;
  Code code = Code::kOk;
};

class MetadataDataPlane final : public DataPlane {
 public:
  explicit MetadataDataPlane(const MetadataDataPlaneOptions& options) : options_(options) {
    TIERCEL_ASSERT(options.rank_count >= 1 && options.rank_count <= kRankCountMax,
                   "rank_count is out of range");
  }

  uint32_t rank_count() const override { return options_.rank_count; }

  size_t submit_capacity() const override {
    return closed_ ? 0 : options_.ops_in_flight_max - ended_.size();
  }

  bool submit(std::span<const BlockOp> ops) override {
    if (ops.size() > submit_capacity() || closed_) return false;
    for (const BlockOp& op : ops) {
      const Code code = execute(op);
      if (static_cast<size_t>(op.kind) < kOpKindCount) {
        ++stats_.paths[static_cast<size_t>(op.kind)].ops;
      }
      ended_.push({op.job, op.item, op.only_rank, code});
    }
    return true;
  }

  size_t poll(std::span<Completion> out) override {
    size_t count = 0;
    while (count < out.size() && !ended_.empty()) {
      const Ended& ended = ended_[0];
      const bool is_alone = ended.only_rank != kEveryRank;
      out[count++] = {.job = ended.job,
                      .item = ended.item,
                      .rank = is_alone ? ended.only_rank : next_rank_,
                      .code = ended.code};
      if (!is_alone && ++next_rank_ < options_.rank_count) continue;
      next_rank_ = 0;
      ended_.pop(1);
    }
    return count;
  }

  int completion_fd() const override { return -1; }

  RankStats stats(uint32_t rank) const override {
    TIERCEL_ASSERT(rank < options_.rank_count, "rank is out of range");
    return stats_;
  }

  Status close(TimePoint) override {
    closed_ = true;
    return {};
  }

 private:
  Code execute(const BlockOp& op) {
    switch (op.kind) {
      case OpKind::kLoad:
      case OpKind::kSave:
      case OpKind::kDiskGet:
      case OpKind::kDiskPut:
      case OpKind::kDiskClear:
        return Code::kOk;
      case OpKind::kStoreGet:
      case OpKind::kStoreExists:
        if (!options_.with_store) return Code::kUnavailable;
        return stored_.contains(op.key, op.group) ? Code::kOk : Code::kNotFound;
      case OpKind::kStorePut:
        if (!options_.with_store) return Code::kUnavailable;
        stored_.insert(op.key, op.group);
        return Code::kOk;
      case OpKind::kStoreRemove:
        if (!options_.with_store) return Code::kUnavailable;
        stored_.erase(op.key, op.group);
        return Code::kOk;
    }
    return Code::kInvalid;
  }

  const MetadataDataPlaneOptions options_;
  StoredBlocks stored_;
  Fifo<Ended> ended_;       // one for all ranks
  uint16_t next_rank_ = 0;  // whose completion of ended_[0] is next
  RankStats stats_;         // the same for every rank
  bool closed_ = false;
};

}  // namespace

std::unique_ptr<DataPlane> make_metadata_data_plane(const MetadataDataPlaneOptions& options) {
  return std::make_unique<MetadataDataPlane>(options);
}

}  // namespace tiercel
