// SPDX-License-Identifier: Apache-2.0
#include "base/process.h"

#include <cerrno>

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error_text.h"

namespace tiercel {
namespace {

FileDescriptor pidfd_open(int64_t pid) {
  return FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));
}

ProcessEnd reap(int process, int flags) {
  siginfo_t info{};
  if (::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(process), &info,
               WEXITED | flags) != 0) {
    // No child of ours, or reaped already (an engine that ignores SIGCHLD).
    return ProcessEnd{.how = "has ended", .is_reaped = true};
  }
  if (info.si_pid == 0) return ProcessEnd{.how = "has ended", .is_reaped = false};
  return ProcessEnd{(info.si_code == CLD_EXITED ? "exited with status " : "was killed by signal ") +
                        std::to_string(info.si_status),
                    true, info.si_code == CLD_KILLED && info.si_status == SIGKILL};
}

}  // namespace

Result<FileDescriptor> open_process(int64_t pid) {
  FileDescriptor process = pidfd_open(pid);
  if (!process) {
    return Error(Code::kUnavailable, "process " + std::to_string(pid) +
                                         " cannot be watched: " + limit_error_text(errno));
  }
  return process;
}

FileDescriptor watch_child(pid_t child, int* error) {
  FileDescriptor process = pidfd_open(child);
  if (!process) {
    *error = errno;
    // It cannot be watched, so it must not be.
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  return process;
}

std::optional<ProcessEnd> look_at_process(int process) {
  pollfd source{.fd = process, .events = POLLIN, .revents = 0};
  if (::poll(&source, 1, 0) != 1) return std::nullopt;
  return ProcessEnd{.how = "has ended", .is_reaped = true};
}

std::optional<ProcessEnd> reap_process(int process) {
  if (!look_at_process(process)) return std::nullopt;
  return reap(process, WNOHANG);
}

ProcessEnd await_process(int process) { return reap(process, 0); }

bool is_process_stopped(int process) {
  siginfo_t info{};
  return ::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(process), &info,
                  WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid != 0;
}

void kill_process(int process) {
  // ESRCH: it has ended.
  static_cast<void>(::syscall(SYS_pidfd_send_signal, process, SIGKILL, nullptr, 0));
}

}  // namespace tiercel
