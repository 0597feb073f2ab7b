// SPDX-License-Identifier: Apache-2.0
#include "base/child_start.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// ThreadSanitizer takes clone for a fork, in the child of which nothing counts any more; as the
// child has our memory, nothing of the thread that called it would count. It does not know the
// other name of it.
#ifdef __SANITIZE_THREAD__
extern "C" int __clone(int (*)(void*), void*, int, void*, ...);  // NOLINT
#endif

namespace tiercel {
namespace {

// The child makes system calls only.
constexpr size_t kStackBytes = size_t{64} << 10;
constexpr int kExitNotRun = 127;

#ifdef __SANITIZE_THREAD__
constexpr auto* kClone = &__clone;
#else
constexpr auto* kClone = &::clone;
#endif

struct Plan {
  const char* program;
  char* const* arguments;
  int socket;
  const char* log_path;  // null: none
  pid_t parent;
  // Written by the child.
  int error = 0;
  const char* call = "";
};

// As the kernel has it, all zeros: the default action, no flags, no mask.
struct KernelSigaction {
  std::array<uint64_t, 4> words;
};
constexpr size_t kKernelSigsetBytes = 8;

long set_default_action(int signal) {
  const KernelSigaction action{};
  return ::syscall(SYS_rt_sigaction, signal, &action, nullptr, kKernelSigsetBytes);
}

// Makes `fd` the descriptor `number`, which stays open in the program.
long move_descriptor(long fd, int number) {
  return fd == number ? ::syscall(SYS_fcntl, fd, F_SETFD, 0) : ::syscall(SYS_dup3, fd, number, 0);
}

long open_as(int number, const char* path, int flags) {
  constexpr mode_t kOwnerOnly = S_IRUSR | S_IWUSR;
  // Before, so that a full table of descriptors has room for it.
  ::syscall(SYS_close, number);
  const long fd = ::syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, kOwnerOnly);
  return fd < 0 ? fd : move_descriptor(fd, number);
}

// Runs in the child, in our memory, while the thread of ours waits. So no function of the C library
// that could take a lock or touch state of this process: system calls only.
int run_child(void* argument) {
  auto& plan = *static_cast<Plan*>(argument);
  const auto failed = [&plan](const char* call) {
    plan.error = errno;
    plan.call = call;
    return kExitNotRun;
  };
  if (::syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) return failed("prctl");
  // Dead already: then the wish has come too late.
  if (::syscall(SYS_getppid) != plan.parent) {
    errno = ESRCH;
    return failed("getppid");
  }
  // Ours are of no use to the program, and what we ignore it would ignore too.
  for (int signal = 1; signal < _NSIG; ++signal) set_default_action(signal);
  if (::syscall(SYS_setpgid, 0, 0) != 0) return failed("setpgid");
  if (move_descriptor(plan.socket, kChildSocketFd) < 0) return failed("dup3");
  if (open_as(STDIN_FILENO, "/dev/null", O_RDONLY) < 0 ||
      open_as(STDOUT_FILENO, "/dev/null", O_WRONLY) < 0) {
    return failed("open of /dev/null");
  }
  if (plan.log_path != nullptr &&
      open_as(STDERR_FILENO, plan.log_path, O_WRONLY | O_CREAT | O_APPEND) < 0) {
    return failed("open of log_path");
  }
  // Sockets, files and locks of an engine would stay with the program after the engine's end. Not
  // known before Linux 5.9: there close-on-exec must do.
  ::syscall(SYS_close_range, unsigned{kChildSocketFd} + 1, ~0u, 0u);
  const uint64_t none = 0;
  ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, nullptr, kKernelSigsetBytes);
  ::syscall(SYS_execve, plan.program, plan.arguments, environ);
  return failed("execve");
}

}  // namespace

StartedChild start_child(const ChildStart& start) {
  std::vector<char*> arguments;
  arguments.reserve(start.arguments.size() + 1);
  for (const std::string& word : start.arguments) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  Plan plan{start.program.c_str(), arguments.data(), start.socket,
            start.log_path.empty() ? nullptr : start.log_path.c_str(), start.parent};
  std::vector<std::max_align_t> stack(kStackBytes / sizeof(std::max_align_t));

  // A handler of ours must not run in the child, which has our memory.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  // Returns when the child has run the program, or has ended.
  const pid_t pid =
      kClone(run_child, stack.data() + stack.size(), CLONE_VM | CLONE_VFORK | SIGCHLD, &plan);
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) return {0, error, "clone"};
  if (plan.error == 0) return {pid, 0, ""};
  ::waitpid(pid, nullptr, 0);
  return {0, plan.error, plan.call};
}

bool may_run_later(int error) {
  switch (error) {
    case EAGAIN:   // too many processes
    case ENOMEM:   // memory is short
    case EMFILE:   // of this process
    case ENFILE:   // of the system
    case ETXTBSY:  // somebody still writes the program
    case EIO:
    case EINTR:
      return true;
    default:
      return false;
  }
}

}  // namespace tiercel
