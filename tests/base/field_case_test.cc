// SPDX-License-Identifier: Apache-2.0
//
// Faults that users of comparable systems met, as far as arenas and the guard against forks can
// show them: use after a fork (F29), shared memory that a dead process leaves behind (F38).

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/fork_guard.h"
#include "support/child_process.h"
#include "support/temp_folder.h"

namespace tiercel {
namespace {

// F29: an object that was made before a fork is used in the child.
TEST(FieldCase, F29AForkIsSeenInTheChildAndOnlyThere) {
  const ForkGuard guard;
  EXPECT_FALSE(guard.is_inherited());
  EXPECT_TRUE(guard.check("the thing"));
  EXPECT_EQ(
      testing::run_in_child([&]() -> std::string {
        if (!guard.is_inherited()) return "not seen";
        const Status status = guard.check("the thing");
        if (status.code() != Code::kUnavailable) return "another code";
        const std::string& message = status.error().message();
        if (message.find("the thing was made by process " + std::to_string(::getppid()) +
                         " and cannot be used in process " + std::to_string(::getpid())) != 0) {
          return message;
        }
        const ForkGuard own;
        if (own.is_inherited()) return "a guard of its own is taken for inherited";
        // Another fork on: both are.
        return testing::run_in_child([&]() -> std::string {
          return guard.is_inherited() && own.is_inherited() ? "" : "not seen in a grandchild";
        });
      }),
      "");
  EXPECT_FALSE(guard.is_inherited());
}

// Every name that something a process has mapped or opened could be found under by another one,
// after its death. What is anonymous, deleted or a device goes with the process.
std::vector<std::string> names_that_stay(pid_t process) {
  std::vector<std::string> names;
  const std::string folder = "/proc/" + std::to_string(process);
  const auto look_at = [&](const std::string& name) {
    if (name.ends_with(" (deleted)")) return;
    for (const char* place : {"/dev/shm/", "/SYSV", "/dev/mqueue/", "/run/", "/var/"}) {
      if (name.starts_with(place)) names.push_back(name);
    }
  };
  std::ifstream maps(folder + "/maps");
  for (std::string line; std::getline(maps, line);) {
    // "address perms offset dev inode   path"; what is shared is not anonymous, whatever its name.
    const size_t path = line.find_first_of("/[", line.find(' '));
    const bool is_shared = line.find(" rw-s ") != std::string::npos;
    if (path != std::string::npos) {
      const std::string name = line.substr(path);
      look_at(name);
      if (is_shared && !name.ends_with(" (deleted)")) names.push_back(name);
    }
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/fd")) {
    std::error_code error;
    look_at(std::filesystem::read_symlink(entry.path(), error).string());
  }
  return names;
}

// F38: left-over shared memory of a dead process made the next start fail with "no buffer". Ours
// has no name, so it cannot be left over.
TEST(FieldCase, F38AProcessThatIsKilledLeavesNoMemoryBehind) {
  constexpr size_t kBytes = size_t{1} << 20;
  const testing::TempFolder home;
  const auto make = [](ArenaKind kind) {
    return Arena::create(kBytes, {.kind = kind, .prefault = true, .name = "tiercel-field-case"});
  };
  for (int start = 0; start < 3; ++start) {
    testing::WaitingChild child([&](const auto& wait) {
      if (::chdir(home.path("").c_str()) != 0) ::_exit(96);
      const auto anonymous = make(ArenaKind::kAnonymous);
      const auto memfd = make(ArenaKind::kMemfd);
      if (anonymous && memfd) wait();
    });
    EXPECT_EQ(names_that_stay(child.pid()), std::vector<std::string>{});
    // A second instance beside a live one, and the next start at once after its death.
    const auto beside = make(ArenaKind::kMemfd);
    ASSERT_TRUE(beside) << beside.error().message();
    std::ranges::fill((*beside)->memory(), std::byte{42});
    child.kill_now();
    EXPECT_TRUE(std::ranges::all_of((*beside)->memory(),
                                    [](std::byte byte) { return byte == std::byte{42}; }));
  }
  EXPECT_TRUE(std::filesystem::is_empty(home.path("")));
}

}  // namespace
}  // namespace tiercel
