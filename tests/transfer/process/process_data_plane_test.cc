// SPDX-License-Identifier: Apache-2.0
//
// tiercel-rank behind ProcessDataPlane, as long as everything goes well; what goes wrong stands in
// rank_loss_test.cc, hostile_rank_test.cc and parent_test.cc.
#include "transfer/process/process_data_plane.h"

#include <fstream>
#include <map>

#include <sys/stat.h>

#include "transfer/process/process_fixture.h"

namespace tiercel {
namespace {

using namespace testing;

class ProcessDataPlaneTest : public ProcessPlaneTest {};

class RankCounts : public ProcessPlaneTest, public ::testing::WithParamInterface<uint32_t> {};

TEST_P(RankCounts, BlockGoesAllTheWayOnEveryRank) {
  options_.store_url = "memory:";
  const uint32_t rank_count = GetParam();
  open_and_wait(make_geometry(rank_count));
  for (uint32_t g = 0; g < 2; ++g) {
    const SlotId a = nth_slot(*geometry_, group(g), 0);
    const SlotId b = nth_slot(*geometry_, group(g), 1);
    EXPECT_EQ(run(make_op(OpKind::kSave, 1 + g, a, 0, group(g))), Code::kOk);
    EXPECT_EQ(run(make_op(OpKind::kStorePut, 1 + g, a, 0, group(g))), Code::kOk);
    EXPECT_EQ(run(make_op(OpKind::kStoreGet, 1 + g, b, 0, group(g))), Code::kOk);
    EXPECT_EQ(run(make_op(OpKind::kLoad, 1 + g, b, 2, group(g))), Code::kOk);
    EXPECT_EQ(run(make_op(OpKind::kLoad, 9, b, 3, group(g))), Code::kCorrupt);
    EXPECT_EQ(run(make_op(OpKind::kLoad, 1, SlotId(UINT32_MAX), 2, group(g))), Code::kInvalid);
    for (uint32_t r = 0; r < rank_count; ++r) {
      const auto from = device_block(r, group(g), 0);
      EXPECT_TRUE(std::equal(from.begin(), from.end(), device_block(r, group(g), 2).begin()));
    }
  }
  for (uint32_t r = 0; r < rank_count; ++r) {
    const PathStats loads = plane_->stats(r).path(OpKind::kLoad);
    EXPECT_EQ(loads.ops, 6u);
    EXPECT_EQ(loads.corrupt, 2u);
    EXPECT_EQ(loads.bytes,
              geometry_->payload_bytes(group(0), r) + geometry_->payload_bytes(group(1), r));
    EXPECT_EQ(plane_->stats(r).store.condition, StoreCondition::kUp);
    EXPECT_EQ(plane_->memory_epoch(r), 0u);
  }
  EXPECT_TRUE(plane_->close(kNoDeadline));
}

INSTANTIATE_TEST_SUITE_P(TwoToEight, RankCounts, ::testing::Values(1, 2, 3, 8));

TEST_F(ProcessDataPlaneTest, EveryOpCompletesExactlyOncePerRankUnderRandomLoad) {
  options_.store_url = "memory:";
  open_and_wait(make_geometry(2));
  Random random(3);
  std::map<std::pair<uint32_t, uint32_t>, int> ended;
  uint32_t submitted = 0;
  for (int step = 0; step < 3000; ++step) {
    std::vector<BlockOp> ops(random.below(20));
    for (BlockOp& made : ops) {
      made = make_op(static_cast<OpKind>(random.below(kOpKindCount + 1)), random.below(6),
                     nth_slot(*geometry_, GroupId(0), static_cast<uint32_t>(random.below(9))),
                     static_cast<uint32_t>(random.below(5)));
      made.job = JobId(random.below(5));
    }
    for (size_t i = 0; i < ops.size(); ++i) ops[i].item = submitted + static_cast<uint32_t>(i);
    if (plane_->submit(ops)) submitted += static_cast<uint32_t>(ops.size());
    std::vector<Completion> out(random.below(80));
    out.resize(plane_->poll(out));
    for (const Completion& completion : out) ++ended[{completion.item, completion.rank}];
  }
  ASSERT_TRUE(plane_->close(kNoDeadline));
  std::array<Completion, 64> out;
  while (const size_t count = plane_->poll(out)) {
    for (size_t i = 0; i < count; ++i) ++ended[{out[i].item, out[i].rank}];
  }
  EXPECT_GT(submitted, 1000u);
  ASSERT_EQ(ended.size(), 2u * submitted);
  for (const auto& [op, count] : ended) ASSERT_EQ(count, 1);
}

TEST_F(ProcessDataPlaneTest, NoWakeUpIsEverLostBetweenProcesses) {
  constexpr uint32_t kRoundTrips = 5'000;
  open_and_wait(make_geometry(1));
  BlockOp ask = make_op(OpKind::kStoreExists, 1);
  for (uint32_t i = 0; i < kRoundTrips; ++i) {
    ask.item = i;
    ASSERT_TRUE(plane_->submit({&ask, 1}));
    const auto completions = wait_for(1);
    ASSERT_EQ(completions.size(), 1u);
    ASSERT_EQ(completions[0].item, i);
  }
}

TEST_F(ProcessDataPlaneTest, ASpinningRankAnswersToo) {
  options_.spin = std::chrono::milliseconds(1);
  open_and_wait(make_geometry(2));
  for (int i = 0; i < 200; ++i) EXPECT_EQ(run(op(OpKind::kStoreExists, 1)), Code::kUnavailable);
}

TEST_F(ProcessDataPlaneTest, DescriptorStaysReadableWhileAPollHasLeftSomethingAndIsQuietAfter) {
  open_and_wait(make_geometry(2));
  std::vector<BlockOp> ops(5, make_op(OpKind::kStoreExists, 1));
  ASSERT_TRUE(plane_->submit(ops));
  size_t polled = 0;
  while (polled < 10) {
    ASSERT_TRUE(readable(plane_->completion_fd(), kHangMs));
    std::array<Completion, 1> out;
    polled += plane_->poll(out);
  }
  // The last announcements may still be on their way.
  ASSERT_TRUE(plane_->close(kNoDeadline));
  std::array<Completion, 1> out;
  EXPECT_EQ(plane_->poll(out), 0u);
  EXPECT_EQ(plane_->poll(out), 0u);
  EXPECT_FALSE(readable(plane_->completion_fd(), 0));
}

TEST_F(ProcessDataPlaneTest, CloseWithWorkInFlightCompletesAllOfItAndReapsTheRanks) {
  open_and_wait(make_geometry(3));
  std::vector<int64_t> pids;
  for (uint32_t r = 0; r < 3; ++r) pids.push_back(pid_of(r));
  std::vector<BlockOp> ops;
  for (uint32_t i = 0; i < 50; ++i) {
    ops.push_back(op(i % 2 == 0 ? OpKind::kSave : OpKind::kStoreExists, i, i / 2));
    ops.back().item = i;
  }
  ASSERT_TRUE(plane_->submit(ops));
  ASSERT_TRUE(plane_->close(kNoDeadline));
  EXPECT_FALSE(plane_->submit(ops));
  EXPECT_EQ(plane_->submit_capacity(), 0u);
  std::vector<Completion> out(1000);
  out.resize(plane_->poll(out));
  std::set<std::pair<uint32_t, uint32_t>> ended;
  for (const Completion& completion : out) ended.insert({completion.item, completion.rank});
  EXPECT_EQ(out.size(), 150u);
  EXPECT_EQ(ended.size(), 150u);
  for (uint32_t r = 0; r < 3; ++r) {
    EXPECT_EQ(plane_->rank_status(r).state, RankState::kClosed);
    EXPECT_FALSE(exists(pids[r])) << "rank " << r << " is still there, perhaps as a zombie";
    EXPECT_EQ(plane_->memory_epoch(r), 0u);
  }
  EXPECT_TRUE(plane_->close(kNoDeadline));
}

TEST_F(ProcessDataPlaneTest, DestructionWithoutCloseEndsTheRanks) {
  open_and_wait(make_geometry(2));
  const std::vector<int64_t> pids = {pid_of(0), pid_of(1)};
  plane_.reset();
  for (const int64_t pid : pids) EXPECT_FALSE(exists(pid));
}

TEST_F(ProcessDataPlaneTest, DestructionWhileRanksStartLeavesNoProcess) {
  for (int i = 0; i < 20; ++i) {
    open(make_geometry(2));
    plane_.reset();
  }
  // The fixture looks for children that are left.
}

TEST_F(ProcessDataPlaneTest, RankHasItsOwnProcessGroupAndNothingOfOurDescriptors) {
  // Without close-on-exec, as an engine's own may be.
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  open_and_wait(make_geometry(1));
  EXPECT_EQ(::getpgid(static_cast<pid_t>(pid_of(0))), pid_of(0));
  EXPECT_EQ(::getsid(static_cast<pid_t>(pid_of(0))), ::getsid(0));
  ::close(pipe[1]);
  // Its end is the only one that could keep the pipe open.
  EXPECT_TRUE(readable(pipe[0], 0)) << "the rank has the pipe";
  ::close(pipe[0]);
}

TEST_F(ProcessDataPlaneTest, StandardErrorGoesToTheLogFile) {
  std::string path = ::testing::TempDir() + "tiercel_rank_log_XXXXXX";
  const int file = ::mkstemp(path.data());
  ASSERT_GE(file, 0);
  ::close(file);
  options_.log_path = path;
  options_.store_url = "nosuchstore:";
  open(make_geometry(1));
  const Status up = plane_->wait_until_up(kNoDeadline);
  plane_.reset();
  std::ifstream log(path);
  const std::string text{std::istreambuf_iterator<char>(log), {}};
  ::unlink(path.c_str());
  EXPECT_NE(text.find("nosuchstore"), std::string::npos) << text;
  // And whoever waits is told as well, without a second try.
  ASSERT_FALSE(up);
  EXPECT_NE(up.error().message().find("nosuchstore"), std::string::npos) << up.error().to_string();
}

TEST_F(ProcessDataPlaneTest, CreateRefusesWhatDoesNotFit) {
  const auto code = [&](const std::function<void()>& change) {
    const ProcessPlaneOptions before = options_;
    change();
    const Status created = create(make_geometry(2));
    options_ = before;
    return created.code();
  };
  EXPECT_EQ(code([&] { options_.ring_ops = 24; }), Code::kInvalid);
  EXPECT_EQ(code([&] { options_.program = "/no/such/program"; }), Code::kInvalid);
  EXPECT_EQ(code([&] { options_.program = ""; }), Code::kInvalid);
  EXPECT_EQ(code([&] { options_.rank_hard_limit = Duration::zero(); }), Code::kInvalid);
  EXPECT_EQ(code([&] { options_.handshake_timeout = Duration(-1); }), Code::kInvalid);
  EXPECT_EQ(code([&] { options_.spin = std::chrono::seconds(2); }), Code::kInvalid);
  EXPECT_EQ(code([&] { options_.store_url = std::string(kStoreUrlBytesMax + 1, 'a'); }),
            Code::kInvalid);
  joins_ = true;
  EXPECT_EQ(code([&] { options_.socket_folder = ""; }), Code::kInvalid);
}

TEST_F(ProcessDataPlaneTest, HostMemoryBeyondTheLimitIsRefusedWithBothNumbers) {
  options_.memory = {1000, "a test"};
  const Status created = create(make_geometry(2));
  ASSERT_EQ(created.code(), Code::kNoSpace);
  EXPECT_NE(created.error().message().find("1000 B"), std::string::npos)
      << created.error().message();
  EXPECT_NE(created.error().message().find("a test"), std::string::npos);
}

TEST_F(ProcessDataPlaneTest, LockedMemoryBeyondTheLimitIsRefusedWithBothNumbers) {
  options_.lock_memory = true;
  options_.lock_bytes_max = 4096;
  const Status created = create(make_geometry(2));
  ASSERT_EQ(created.code(), Code::kNoSpace);
  EXPECT_NE(created.error().message().find("4 KiB"), std::string::npos)
      << created.error().message();
  EXPECT_NE(created.error().message().find("ulimit -l"), std::string::npos);
  options_.lock_bytes_max = UINT64_MAX;
  open_and_wait(make_geometry(2));
  EXPECT_EQ(run(op(OpKind::kSave, 1)), Code::kOk);
}

TEST_F(ProcessDataPlaneTest, PrefaultTouchesAllHostMemoryBeforeTheRanksAreUpAndNeverSpoilsIt) {
  std::vector<FileDescriptor> memories;
  options_.make_memory = [&](const std::string& name, size_t bytes) {
    auto memory = make_memfd(name, bytes);
    if (memory && name.find("host") != std::string::npos) {
      memories.emplace_back(::dup(memory->get()));
    }
    return memory;
  };
  options_.huge_pages = false;
  const auto resident = [&](uint32_t rank) {
    struct stat status {};
    EXPECT_EQ(::fstat(memories[rank].get(), &status), 0);
    return static_cast<uint64_t>(status.st_blocks) * 512;
  };
  open_and_wait(make_geometry(2));
  EXPECT_LT(resident(0), geometry_->tier_bytes(0)) << "or nothing is shown here";
  memories.clear();
  options_.prefault = true;
  open_and_wait(make_geometry(2));
  for (uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_GE(resident(rank), geometry_->tier_bytes(rank));
  }
  EXPECT_EQ(run(op(OpKind::kSave, 1)), Code::kOk);
  EXPECT_EQ(run(op(OpKind::kLoad, 1, 0, 1)), Code::kOk);
}

TEST_F(ProcessDataPlaneTest, RefusedMemfdIsReportedAtTheStart) {
  options_.make_memory = [](const std::string&, size_t) -> Result<FileDescriptor> {
    return Error(Code::kUnavailable, "no memfds here");
  };
  const Status created = create(make_geometry(2));
  ASSERT_EQ(created.code(), Code::kUnavailable);
  EXPECT_EQ(created.error().message(), "no memfds here");
}

TEST_F(ProcessDataPlaneTest, MemfdRefusedLaterIsTriedAgainAfterTheBackOff) {
  bool refuse = true;
  options_.make_memory = [&](const std::string& name, size_t bytes) -> Result<FileDescriptor> {
    if (refuse && name.find("channel") != std::string::npos) {
      return Error(Code::kUnavailable, "no memfds now");
    }
    return make_memfd(name, bytes);
  };
  open(make_geometry(1));
  EXPECT_EQ(plane_->rank_status(0).state, RankState::kRestarting);
  EXPECT_NE(plane_->rank_status(0).last_error.find("no memfds now"), std::string::npos);
  refuse = false;
  std::array<Completion, 1> out;
  EXPECT_EQ(plane_->poll(out), 0u);
  EXPECT_EQ(plane_->rank_status(0).starts, 1u) << "it was started again at once";
  clock_.advance(options_.backoff);
  ASSERT_TRUE(wait_for_state(0, RankState::kUp));
  EXPECT_EQ(run(op(OpKind::kSave, 1)), Code::kOk);
}

}  // namespace
}  // namespace tiercel
