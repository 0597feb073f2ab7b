// SPDX-License-Identifier: Apache-2.0
//
// A rank worker whose disk has as many puts as it is given at once: the others wait quietly.
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "transfer/rank_fixture.h"

namespace tiercel {
namespace {

using namespace testing;

// Takes everything and answers when told to.
class PatientDisk final : public RankDisk {
 public:
  Code start(const DiskGet& get) override { return take(get.token); }
  Code start(const DiskPut& put) override { return take(put.token); }
  Code start_clear(uint64_t token) override { return take(token); }
  void flush() override {}
  size_t poll(std::span<DiskDone> out) override {
    size_t count = 0;
    while (may_answer && count < out.size() && !tokens.empty()) {
      out[count++] = {.token = tokens.back()};
      tokens.pop_back();
    }
    return count;
  }
  size_t in_flight() const override { return tokens.size(); }
  int completion_fd() const override { return -1; }
  TimePoint next_due() const override { return kNoDeadline; }
  StoreHealth health() const override { return {}; }
  RankDiskStats stats() const override { return {}; }
  std::string describe() const override { return "patient"; }
  Status close(TimePoint /*deadline*/) override { return {}; }

  std::vector<uint64_t> tokens;  // taken and not answered
  bool may_answer = false;

 private:
  Code take(uint64_t token) {
    tokens.push_back(token);
    return Code::kOk;
  }
};

TEST(RankWorkerDiskBound, PutsAboveTheBoundWaitWithoutABusyLoop) {
  const SlotGeometry geometry = uneven_geometry();
  ManualClock clock;
  TestRank rank(geometry, 0, 4);
  auto owned = std::make_unique<PatientDisk>();
  PatientDisk& disk = *owned;
  RankWorkerOptions options = rank.options();
  options.disk_puts_max = 1;
  auto worker = RankWorker::create(options, geometry, rank.host(), &rank.copier(), nullptr, clock,
                                   std::move(owned))
                    .value();
  std::vector<BlockOp> puts;
  for (uint32_t number = 0; number < 2; ++number) {
    const SlotId slot = nth_slot(geometry, GroupId(0), number);
    ASSERT_EQ(run_op(*worker, make_op(OpKind::kSave, number, slot, number, GroupId(0))), Code::kOk);
    puts.push_back(make_op(OpKind::kDiskPut, number, slot, 0, GroupId(0)));
  }
  worker->submit(puts);
  int calls = 0;
  while (worker->progress(64) && calls < 100) ++calls;
  EXPECT_LT(calls, 100) << "progress() says that there is more to do, but all waits for the disk";
  EXPECT_EQ(disk.tokens.size(), 1u);
  disk.may_answer = true;
  while (worker->progress(64)) {
  }
  std::vector<Completion> done(4);
  EXPECT_EQ(worker->take(done), 2u);
}

}  // namespace
}  // namespace tiercel
