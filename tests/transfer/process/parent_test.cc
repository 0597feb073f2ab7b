// SPDX-License-Identifier: Apache-2.0
//
// The process of the control plane: its death ends the ranks and leaves nothing behind; its forks
// and the ends of its threads do no harm.
#include <filesystem>
#include <set>
#include <thread>

#include <sys/mman.h>

#include "base/process.h"
#include "support/child_process.h"
#include "support/limits.h"
#include "support/temp_folder.h"
#include "transfer/process/instance_socket.h"
#include "transfer/process/process_fixture.h"

namespace tiercel {
namespace {

using namespace testing;

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    names.insert(entry.path().filename());
  }
  return names;
}

// Ours by their name, but for the folders of other tests that run meanwhile.
std::set<std::string> our_names_in(const std::string& folder) {
  std::set<std::string> names = names_in(folder);
  std::erase_if(names, [](const std::string& name) {
    return name.find("tiercel") == std::string::npos || name.starts_with("tiercel_");
  });
  return names;
}

class ParentTest : public ProcessPlaneTest {
 protected:
  // What a child tells of its ranks.
  struct Shared {
    std::array<int64_t, 4> pids;
  };
  ParentTest() {
    void* const memory =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared_ = static_cast<Shared*>(memory);
  }
  ~ParentTest() override { ::munmap(shared_, sizeof(Shared)); }

  Shared* shared_;
  TempFolder folder_;
};

TEST_F(ParentTest, KilledControlPlaneTakesItsRanksAlongAndLeavesNothing) {
  const std::set<std::string> shm = our_names_in("/dev/shm");
  const std::set<std::string> temp = our_names_in(std::filesystem::temp_directory_path());
  WaitingChild child([&](const auto& wait) {
    open_and_wait(make_geometry(3));
    // One of them cannot even notice.
    stop_rank(2);
    for (uint32_t r = 0; r < 3; ++r) shared_->pids[r] = pid_of(r);
    wait();
  });
  std::vector<FileDescriptor> processes;
  for (uint32_t r = 0; r < 3; ++r) {
    ASSERT_GT(shared_->pids[r], 0);
    processes.push_back(open_process(shared_->pids[r]).value());
    EXPECT_FALSE(readable(processes[r].get(), 0));
  }
  child.kill_now();
  for (uint32_t r = 0; r < 3; ++r) {
    EXPECT_TRUE(readable(processes[r].get(), kHangMs)) << "rank " << r << " lives on";
  }
  EXPECT_EQ(our_names_in("/dev/shm"), shm);
  EXPECT_EQ(our_names_in(std::filesystem::temp_directory_path()), temp);
}

// Whatever stands in the place of tiercel-rank, and knows nothing of parents and their death.
TEST_F(ParentTest, KilledControlPlaneTakesAForeignProgramAlongToo) {
  options_.program = folder_.write("foreign", "#!/bin/sh\nexec sleep 300\n");
  std::filesystem::permissions(options_.program, std::filesystem::perms::owner_all);
  WaitingChild child([&](const auto& wait) {
    open(make_geometry(1));
    if (!wait_until([&] { return pid_of(0) != 0; })) return;
    shared_->pids[0] = pid_of(0);
    wait();
  });
  ASSERT_GT(shared_->pids[0], 0);
  const FileDescriptor process = open_process(shared_->pids[0]).value();
  EXPECT_FALSE(readable(process.get(), 0));
  child.kill_now();
  const bool is_dead = readable(process.get(), kHangMs);
  EXPECT_TRUE(is_dead) << "process " << shared_->pids[0] << " lives on";
  if (!is_dead) ::kill(static_cast<pid_t>(shared_->pids[0]), SIGKILL);
}

TEST_F(ParentTest, RanksOutliveTheThreadThatMadeThePlane) {
  std::thread maker([&] { open_and_wait(make_geometry(2)); });
  maker.join();
  ASSERT_NE(plane_, nullptr);
  for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(run(op(OpKind::kSave, i)), Code::kOk);
  EXPECT_EQ(plane_->rank_status(0).starts, 1u);
  EXPECT_EQ(plane_->rank_status(1).starts, 1u);
}

TEST_F(ParentTest, ForkIsRefusedClearlyAndHarmsNeitherParentNorRanks) {
  open_and_wait(make_geometry(2));
  EXPECT_EQ(run(op(OpKind::kSave, 1)), Code::kOk);
  const BlockOp load = make_op(OpKind::kLoad, 1, nth_slot(*geometry_, GroupId(0), 0), 1);
  ASSERT_TRUE(plane_->submit({&load, 1}));
  // An answer waits: the child must not take it, nor its announcement.
  ASSERT_TRUE(readable(plane_->completion_fd(), kHangMs));
  EXPECT_EQ(run_in_child([&]() -> std::string {
              std::array<Completion, 4> out;
              if (plane_->poll(out) != 0) return "poll returned something";
              if (plane_->submit_capacity() != 0) return "there is room";
              if (plane_->submit({&load, 1})) return "submit took something";
              if (plane_->usable().code() != Code::kUnavailable) return "usable: another code";
              if (plane_->wait_until_up(kNoDeadline)) return "it is up";
              const Status closed = plane_->close(kNoDeadline);
              if (closed.code() != Code::kUnavailable) return "close: another code";
              plane_.reset();
              return closed.error().message().find("forked off") == std::string::npos
                         ? closed.error().message()
                         : "";
            }),
            "");
  EXPECT_EQ(codes_of(wait_for(2)), (std::vector{Code::kOk, Code::kOk}));
  EXPECT_EQ(run(op(OpKind::kSave, 2)), Code::kOk);
  EXPECT_EQ(plane_->rank_status(0).starts, 1u);
  EXPECT_TRUE(plane_->close(kNoDeadline));
}

class InstanceTest : public ParentTest {
 protected:
  std::string folder() const { return folder_.path("ranks"); }
};

TEST_F(InstanceTest, SocketAndFolderAreForTheOwnerOnlyAndGoAtTheEnd) {
  {
    auto socket = InstanceSocket::open(folder(), "main");
    ASSERT_TRUE(socket) << socket.error().to_string();
    EXPECT_EQ((**socket).path(), folder() + "/main.sock");
    using std::filesystem::perms;
    EXPECT_EQ(std::filesystem::status(folder()).permissions(), perms::owner_all);
    EXPECT_EQ(std::filesystem::status((**socket).path()).permissions(),
              perms::owner_read | perms::owner_write);
    EXPECT_EQ(names_in(folder()), (std::set<std::string>{"main.lock", "main.sock"}));
  }
  EXPECT_EQ(names_in(folder()), std::set<std::string>{});
}

TEST_F(InstanceTest, NameThatIsTakenIsRefusedWithTheHoldersPid) {
  auto first = InstanceSocket::open(folder(), "main");
  ASSERT_TRUE(first);
  const auto second = InstanceSocket::open(folder(), "main");
  ASSERT_EQ(second.code(), Code::kBusy);
  EXPECT_NE(second.error().message().find("held by process " + std::to_string(::getpid())),
            std::string::npos)
      << second.error().message();
  EXPECT_TRUE(InstanceSocket::open(folder(), "other"));
  // The refused one has not taken the files along.
  EXPECT_TRUE(std::filesystem::exists((**first).path()));
  first->reset();
  EXPECT_TRUE(InstanceSocket::open(folder(), "main"));
}

TEST_F(InstanceTest, TwoEnginesOnOneInstanceNameAreToldApart) {
  joins_ = true;
  options_.socket_folder = folder();
  WaitingChild child([&](const auto& wait) {
    open(make_geometry(1));
    wait();
  });
  const Status second = create(make_geometry(1));
  ASSERT_EQ(second.code(), Code::kBusy);
  EXPECT_NE(second.error().message().find("process " + std::to_string(child.pid())),
            std::string::npos)
      << second.error().message();
  // Its death frees the name, and what it has left is taken over.
  child.kill_now();
  EXPECT_TRUE(std::filesystem::exists(folder() + "/main.sock"));
  open(make_geometry(1));
  plane_.reset();
  EXPECT_EQ(names_in(folder()), std::set<std::string>{});
}

TEST_F(InstanceTest, ForkOfTheHolderDoesNotRemoveTheFiles) {
  auto socket = InstanceSocket::open(folder(), "main");
  ASSERT_TRUE(socket);
  EXPECT_EQ(run_in_child([&]() -> std::string {
              socket->reset();
              return "";
            }),
            "");
  EXPECT_EQ(names_in(folder()).size(), 2u);
}

TEST_F(InstanceTest, LimitOfFileSizeIsAnError) {
  EXPECT_EQ(run_in_child([&]() -> std::string {
              set_limit(RLIMIT_FSIZE, 0);
              const auto socket = InstanceSocket::open(folder(), "main");
              if (socket.code() != Code::kUnavailable) return "another code";
              const std::string& message = socket.error().message();
              return message.find("File too large") != std::string::npos ? "" : message;
            }),
            "");
}

TEST_F(InstanceTest, FolderThatOthersMayEnterIsRefused) {
  ASSERT_TRUE(std::filesystem::create_directory(folder()));
  std::filesystem::permissions(folder(), std::filesystem::perms::others_exec,
                               std::filesystem::perm_options::add);
  EXPECT_EQ(InstanceSocket::open(folder(), "main").code(), Code::kInvalid);
  std::filesystem::permissions(folder(), std::filesystem::perms::owner_all);
  EXPECT_TRUE(InstanceSocket::open(folder(), "main"));
  // Nor a link to one, nor a file.
  std::filesystem::create_directory_symlink(folder(), folder_.path("link"));
  EXPECT_EQ(InstanceSocket::open(folder_.path("link"), "main").code(), Code::kInvalid);
  EXPECT_EQ(InstanceSocket::open(folder_.write("file", ""), "main").code(), Code::kInvalid);
  EXPECT_EQ(InstanceSocket::open(folder_.path("no/parent"), "main").code(), Code::kUnavailable);
}

TEST_F(InstanceTest, NamesThatCouldLeaveTheFolderAndPathsThatAreTooLongAreRefused) {
  for (const char* name : {"", ".", "..", ".hidden", "a/b", "a b", "a\n"}) {
    EXPECT_EQ(InstanceSocket::open(folder(), name).code(), Code::kInvalid) << name;
  }
  const auto socket = InstanceSocket::open(folder(), std::string(200, 'a'));
  ASSERT_EQ(socket.code(), Code::kInvalid);
  EXPECT_NE(socket.error().message().find("allowed: 1 to 107"), std::string::npos)
      << socket.error().message();
}

}  // namespace
}  // namespace tiercel
