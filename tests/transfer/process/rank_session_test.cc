// SPDX-License-Identifier: Apache-2.0
//
// The rank's side: it joins truthful control planes, and believes no other. The hostile control
// plane is the test itself, which has said everything before the rank begins to listen.
#include "transfer/process/rank_session.h"

#include <mutex>
#include <thread>

#include <sys/mman.h>

#include "base/event_fd.h"
#include "base/memfd.h"
#include "support/child_process.h"
#include "transfer/process/join_fixture.h"
#include "transfer/rank_port.h"

namespace tiercel {
namespace {

using namespace testing;

class HostileControl : public ::testing::Test {
 protected:
  HostileControl() {
    auto sockets = make_socket_pair().value();
    ours_ = std::move(sockets.first);
    theirs_ = std::move(sockets.second);
    welcome_.worker.slice = {0, 1};
    welcome_.ring_ops = 8;
    const size_t channel_bytes = RankChannel::bytes(welcome_.ring_ops);
    fds_.push_back(make_memfd("channel", channel_bytes).value());
    fds_.push_back(make_memfd("host", geometry_.tier_bytes(0)).value());
    for (EventFd* event : {&wake_, &announced_}) fds_.emplace_back(::dup(event->fd()));
    channel_memory_ = Arena::map(duplicate(0), channel_bytes, {}).value();
    channel_.emplace(
        RankChannel::format(channel_memory_->memory(),
                            {.ring_ops = 8, .rank = 0, .geometry = geometry_digest(geometry_)}));
  }

  FileDescriptor duplicate(size_t i) { return FileDescriptor(::dup(fds_[i].get())); }

  // Sends the welcome, or `bytes` in its place, and lets the rank answer.
  Result<std::unique_ptr<RankSession>> open(std::optional<std::vector<std::byte>> bytes = {}) {
    std::vector<int> numbers;
    for (const FileDescriptor& fd : fds_) numbers.push_back(fd.get());
    EXPECT_TRUE(send_message(ours_.get(), bytes ? *bytes : encode_welcome(welcome_), numbers));
    return open_rank_session(std::move(theirs_), std::move(parts_));
  }

  // The rank refuses with that code and says why; the control plane is told the same.
  void expect_refused(Code code, const std::string& why,
                      std::optional<std::vector<std::byte>> bytes = {}) {
    const auto session = open(std::move(bytes));
    ASSERT_FALSE(session) << "it was believed";
    EXPECT_EQ(session.code(), code) << session.error().to_string();
    EXPECT_NE(session.error().message().find(why), std::string::npos) << session.error().message();
    auto hello = receive_message(ours_.get());
    ASSERT_TRUE(hello && hello->has_value());
    EXPECT_TRUE(decode_hello((**hello).bytes));
    auto refusal = receive_message(ours_.get());
    ASSERT_TRUE(refusal && refusal->has_value());
    const Status told = decode_ready((**refusal).bytes);
    EXPECT_EQ(told.code(), code);
    EXPECT_NE(told.error().message().find(why), std::string::npos) << told.error().message();
  }

  const SlotGeometry geometry_ = SlotGeometry::for_blocks({{100}}, 16, 4).value();
  FileDescriptor ours_, theirs_;
  WelcomeMessage welcome_{geometry_};
  EventFd wake_ = EventFd::create().value();
  EventFd announced_ = EventFd::create().value();
  std::vector<FileDescriptor> fds_;
  std::unique_ptr<Arena> channel_memory_;
  std::optional<RankChannel> channel_;
  RankParts parts_;
};

TEST_F(HostileControl, TruthfulOneIsServedUntilItHangsUp) {
  auto session = open();
  ASSERT_TRUE(session) << session.error().to_string();
  RankPort port(*channel_, wake_);
  BlockOp ask = make_op(OpKind::kStoreExists, 1);
  ASSERT_TRUE(port.submit({&ask, 1}));
  ours_.reset();
  // It looks for our end only when it has nothing to do.
  EXPECT_EQ((*session)->run().code(), Code::kUnavailable);
  Completion completion;
  ASSERT_EQ(port.poll({&completion, 1}), 1u);
  EXPECT_EQ(completion.code, Code::kUnavailable);
  EXPECT_EQ(port.stats().path(OpKind::kStoreExists).ops, 1u);
}

TEST_F(HostileControl, CloseWordEndsARunWell) {
  auto session = open();
  ASSERT_TRUE(session);
  RankPort port(*channel_, wake_);
  BlockOp ask = make_op(OpKind::kStoreExists, 1);
  ASSERT_TRUE(port.submit({&ask, 1}));
  port.ask_to_close(Duration::zero());
  EXPECT_TRUE((*session)->run());
  Completion completion;
  EXPECT_EQ(port.poll({&completion, 1}), 1u);
}

TEST_F(HostileControl, StopEndsARunAlsoBeforeItHasBegun) {
  auto session = open();
  ASSERT_TRUE(session);
  (*session)->stop();
  EXPECT_EQ((*session)->run().code(), Code::kCancelled);
}

TEST_F(HostileControl, MessageAfterTheHandshakeEndsTheSession) {
  auto session = open();
  ASSERT_TRUE(session);
  ASSERT_TRUE(send_message(ours_.get(), encode_welcome(welcome_)));
  EXPECT_EQ((*session)->run().code(), Code::kCorrupt);
}

TEST_F(HostileControl, MoreOperationsThanThereIsRoomForEndTheSession) {
  auto session = open();
  ASSERT_TRUE(session);
  // Eight completions that nobody has polled leave no room for a ninth.
  std::vector<BlockOp> ops(8, make_op(OpKind::kStoreExists, 1));
  SpscProducer<BlockOp> producer(channel_->ops_memory(), 8);
  ASSERT_EQ(producer.push(ops), 8u);
  FakeRank::counters(channel_->completions_memory()).consumed.store(UINT64_MAX - 3);
  EXPECT_EQ((*session)->run().code(), Code::kCorrupt);
}

TEST_F(HostileControl, OperationsThatAreNoneCompleteAsInvalidAndTouchNothing) {
  parts_.device_memory = {};
  auto session = open();
  ASSERT_TRUE(session);
  RankPort port(*channel_, wake_);
  std::vector<BlockOp> ops(8);
  Random random(5);
  for (BlockOp& op : ops) fill_random(std::as_writable_bytes(std::span(&op, 1)), random.next());
  ASSERT_TRUE(port.submit(ops));
  ours_.reset();
  EXPECT_EQ((*session)->run().code(), Code::kUnavailable);
  std::array<Completion, 8> out;
  ASSERT_EQ(port.poll(out), 8u);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(out[i].code, Code::kInvalid);
    EXPECT_EQ(out[i].job, ops[i].job);
  }
}

TEST_F(HostileControl, CountersOfTheRingOfAnyValueNeverLeadOutOfIt) {
  auto session = open();
  ASSERT_TRUE(session);
  FakeRank::counters(channel_->ops_memory()).produced.store(uint64_t{1} << 33);
  ours_.reset();
  // The ring looks empty.
  EXPECT_EQ((*session)->run().code(), Code::kUnavailable);
}

TEST_F(HostileControl, OtherVersionIsRefused) {
  std::vector<std::byte> bytes = encode_welcome(welcome_);
  bytes[4] = std::byte{3};
  expect_refused(Code::kInvalid, "protocol version of the other side is 3; allowed: 2", bytes);
}

TEST_F(HostileControl, WelcomeOfOtherLengthIsRefused) {
  std::vector<std::byte> bytes = encode_welcome(welcome_);
  bytes.pop_back();
  expect_refused(Code::kInvalid, "message length", bytes);
}

TEST_F(HostileControl, ReadyInPlaceOfTheWelcomeIsRefused) {
  expect_refused(Code::kInvalid, "kind of message", encode_ready());
}

TEST_F(HostileControl, WelcomeForAnotherRankIsRefused) {
  parts_.rank = 1;
  expect_refused(Code::kInvalid, "welcome is for rank 0; allowed: 1");
}

TEST_F(HostileControl, OtherNamespaceIsRefused) {
  parts_.name_space = test_namespace(3);
  expect_refused(Code::kInvalid, "namespace");
}

TEST_F(HostileControl, MissingDescriptorsAreRefused) {
  fds_.pop_back();
  expect_refused(Code::kInvalid, "3 descriptors; allowed: 4");
}

TEST_F(HostileControl, DescriptorsInAnotherOrderAreRefused) {
  std::swap(fds_[0], fds_[3]);
  expect_refused(Code::kInvalid, "is not a memfd");
}

TEST_F(HostileControl, EventfdThatIsAMemfdIsRefused) {
  fds_[2] = duplicate(0);
  expect_refused(Code::kInvalid, "allowed: an eventfd");
}

TEST_F(HostileControl, HostMemoryThatCouldShrinkUnderUsIsRefused) {
  fds_[1].reset(::memfd_create("host", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(fds_[1].get(), 1 << 20), 0);
  expect_refused(Code::kInvalid, "F_SEAL_SHRINK");
}

TEST_F(HostileControl, HostMemoryThatIsTooSmallIsRefused) {
  fds_[1] = make_memfd("host", 4096).value();
  expect_refused(Code::kInvalid, "has 4096 bytes; allowed: at least ");
}

TEST_F(HostileControl, ChannelOfAnotherGeometryIsRefused) {
  const SlotGeometry other = SlotGeometry::for_blocks({{101}}, 16, 4).value();
  RankChannel::format(channel_memory_->memory(),
                      {.ring_ops = 8, .rank = 0, .geometry = geometry_digest(other)});
  expect_refused(Code::kInvalid, "another slot geometry");
}

TEST_F(HostileControl, ChannelOfAnotherSizeIsRefused) {
  welcome_.ring_ops = 4;
  expect_refused(Code::kInvalid, "ring_ops is 8; allowed: 4");
}

TEST_F(HostileControl, DeviceBlocksThatDoNotFitAreRefused) {
  welcome_.device_bytes = 1000;
  welcome_.device_groups = {{0, 10}};
  std::vector<std::byte> bytes = encode_welcome(welcome_);
  // The number of blocks, as 11 where there is room for 10.
  const auto ten = std::find(bytes.begin(), bytes.end(), std::byte{10});
  ASSERT_NE(ten, bytes.end());
  *ten = std::byte{11};
  expect_refused(Code::kInvalid, "", bytes);
}

TEST_F(HostileControl, DeviceOfOtherBlocksThanTheSlotsIsRefused) {
  std::vector<std::byte> memory(4 * 99);
  parts_.device_memory = {memory};
  expect_refused(Code::kInvalid, "");
}

TEST_F(HostileControl, UnknownStoreIsRefused) {
  welcome_.store_url = "nosuchstore:";
  expect_refused(Code::kInvalid, "nosuchstore");
}

TEST_F(HostileControl, HangUpBeforeTheWelcomeIsUnavailable) {
  ours_.reset();
  EXPECT_EQ(open_rank_session(std::move(theirs_), {}).code(), Code::kUnavailable);
}

TEST_F(HostileControl, SilenceEndsAtTheLimitAndNamesTheStep) {
  ManualClock clock;
  parts_.clock = &clock;
  parts_.step_timeout = Duration::zero();
  const auto session = open_rank_session(std::move(theirs_), std::move(parts_));
  ASSERT_EQ(session.code(), Code::kTimeout);
  EXPECT_NE(session.error().message().find("the welcome"), std::string::npos);
}

TEST_F(HostileControl, RefusalIsHandedOn) {
  fds_.clear();
  const auto session = open(encode_refusal(Error(Code::kBusy, "taken by process 5")));
  EXPECT_EQ(session.code(), Code::kBusy);
  EXPECT_NE(session.error().message().find("taken by process 5"), std::string::npos);
}

// An engine's workers as threads of this process; the plane on the test's own.
class Joined : public JoinTest {
 protected:
  struct Worker {
    std::vector<std::byte> memory;
    RankSession* session = nullptr;  // while it lives
    Status ended;
    std::thread thread;
  };

  // Joins and runs; the plane is polled until it is up.
  void start(Worker& worker, uint32_t rank) {
    const uint64_t bytes = kDeviceBlocks * geometry_->payload_bytes(GroupId(0), rank);
    if (worker.memory.empty()) {
      worker.memory.resize(bytes);
      fill_random(worker.memory, rank);
    }
    worker.thread = std::thread([this, &worker, rank] {
      RankParts parts;
      parts.rank = rank;
      parts.device_memory = {worker.memory};
      parts.name_space = test_namespace();
      auto session = RankSession::join(plane_->socket_path(), std::move(parts));
      if (!session) {
        worker.ended = session.error();
        return;
      }
      {
        const std::lock_guard lock(mutex_);
        worker.session = session->get();
      }
      running_.fetch_add(1);
      worker.ended = (**session).run();
      const std::lock_guard lock(mutex_);
      worker.session = nullptr;
    });
    ASSERT_TRUE(wait_for_state(rank, RankState::kUp));
  }

  std::mutex mutex_;
  std::atomic<uint32_t> running_{0};
};

TEST_F(Joined, EngineWorkersServeTheirRanksWithTheirOwnMemory) {
  open(make_geometry(3, 1));
  std::array<Worker, 3> workers;
  for (uint32_t r = 0; r < 3; ++r) start(workers[r], r);
  EXPECT_EQ(run(op(OpKind::kSave, 1, 0, 0)), Code::kOk);
  EXPECT_EQ(run(make_op(OpKind::kLoad, 1, nth_slot(*geometry_, GroupId(0), 0), 2)), Code::kOk);
  ASSERT_TRUE(plane_->close(kNoDeadline));
  for (uint32_t r = 0; r < 3; ++r) {
    workers[r].thread.join();
    EXPECT_TRUE(workers[r].ended) << workers[r].ended.error().to_string();
    const size_t bytes = geometry_->payload_bytes(GroupId(0), r);
    const std::span<std::byte> memory(workers[r].memory);
    const auto from = memory.first(bytes);
    EXPECT_TRUE(std::equal(from.begin(), from.end(), memory.subspan(2 * bytes).begin()));
  }
  EXPECT_FALSE(std::filesystem::exists(plane_->socket_path()));
}

TEST_F(Joined, WorkerThatStopsMayJoinAgainAndItsMemoryIsEmptyThen) {
  open(make_geometry(2, 1));
  std::array<Worker, 2> workers;
  for (uint32_t r = 0; r < 2; ++r) start(workers[r], r);
  EXPECT_EQ(run(op(OpKind::kSave, 1)), Code::kOk);
  while (running_.load() < 2) std::this_thread::yield();
  {
    const std::lock_guard lock(mutex_);
    ASSERT_NE(workers[1].session, nullptr);
    workers[1].session->stop();
  }
  workers[1].thread.join();
  EXPECT_EQ(workers[1].ended.code(), Code::kCancelled);
  ASSERT_TRUE(wait_for_state(1, RankState::kRestarting));
  EXPECT_EQ(plane_->memory_epoch(1), 1u);
  EXPECT_EQ(run_each(op(OpKind::kSave, 2)), (std::vector{Code::kOk, Code::kUnavailable}));
  start(workers[1], 1);
  EXPECT_EQ(run(op(OpKind::kSave, 3)), Code::kOk);
  ASSERT_TRUE(plane_->close(kNoDeadline));
  for (Worker& worker : workers) worker.thread.join();
}

TEST_F(Joined, KilledWorkerIsNoticedAndLeftForTheEngineToReap) {
  void* const memory =
      ::mmap(nullptr, sizeof(pid_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  pid_t& grandchild = *static_cast<pid_t*>(memory);
  open(make_geometry(1, 1));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(kChildSecondsMax);
    auto session = RankSession::join(plane_->socket_path(), {});
    // A fork of the worker keeps the socket open, so that only the end of the process is seen.
    const pid_t forked = ::fork();
    while (forked == 0) ::pause();
    __atomic_store_n(&grandchild, forked, __ATOMIC_SEQ_CST);
    if (session) static_cast<void>((*session)->run().has_value());
    ::_exit(0);
  }
  ASSERT_TRUE(wait_for_state(0, RankState::kUp));
  while (__atomic_load_n(&grandchild, __ATOMIC_SEQ_CST) == 0) std::this_thread::yield();
  EXPECT_EQ(pid_of(0), child);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  EXPECT_TRUE(wait_for_state(0, RankState::kRestarting));
  EXPECT_EQ(plane_->memory_epoch(0), 1u);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child) << "somebody else has reaped it";
  EXPECT_TRUE(WIFSIGNALED(status));
  ::kill(grandchild, SIGKILL);
  ::munmap(memory, sizeof(pid_t));
}

TEST_F(Joined, DestructionOfThePlaneEndsTheSessions) {
  open(make_geometry(1, 1));
  Worker worker;
  start(worker, 0);
  plane_.reset();
  worker.thread.join();
  EXPECT_FALSE(std::filesystem::exists(folder_.path("ranks/main.sock")));
}

TEST_F(Joined, JoinWithoutAControlPlaneIsUnavailable) {
  RankParts parts;
  EXPECT_EQ(RankSession::join(folder_.path("none.sock"), std::move(parts)).code(),
            Code::kUnavailable);
}

}  // namespace
}  // namespace tiercel
