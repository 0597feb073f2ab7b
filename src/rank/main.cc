// SPDX-License-Identifier: Apache-2.0
//
// tiercel-rank: hosts one rank worker in a process of its own, for a control plane that has started
// it. Not for people: it is told what to do over the socket that it inherits.
//   tiercel-rank --socket-fd FD --parent PID --rank N
// Exit 0: closed on request. 1: the reason is on standard error, and the control plane has been
// told. 2: it was not started by a control plane.
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string_view>

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "transfer/process/rank_session.h"

namespace tiercel {
namespace {

enum Exit : int { kExitOk = 0, kExitFailed = 1, kExitUsage = 2 };

// -1 if there is no such option, or no number behind it.
int read_number(int argc, char** argv, std::string_view option) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (argv[i] != option) continue;
    const std::string_view text = argv[i + 1];
    int number = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size() ? number : -1;
  }
  return -1;
}

int run(int argc, char** argv) {
  const int socket = read_number(argc, argv, "--socket-fd");
  const int parent = read_number(argc, argv, "--parent");
  const int rank = read_number(argc, argv, "--rank");
  if (socket < 0 || parent <= 0 || rank < 0) {
    std::fprintf(stderr,
                 "tiercel-rank is started by a control plane of Tiercel; see docs/ranks.md\n");
    return kExitUsage;
  }
  // With the parent, whatever ends it. That has been asked for before this program was run, but the
  // kernel forgets it where the program's file has rights of its own, such as to lock memory.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent) return kExitFailed;

  RankParts parts;
  parts.rank = static_cast<uint32_t>(rank);
  // The control plane may be busy with other things for long; its end is seen at once.
  parts.step_timeout = Duration::max();
  auto session = open_rank_session(FileDescriptor(socket), std::move(parts));
  const Status status = session ? (*session)->run() : Status(session.error());
  if (status) return kExitOk;
  std::fprintf(stderr, "tiercel-rank %d: %s\n", rank, status.error().to_string().c_str());
  // The store may still hold on; the end of the process is what makes it let go.
  if (status.code() == Code::kTimeout) ::_exit(kExitFailed);
  return kExitFailed;
}

}  // namespace
}  // namespace tiercel

// NOLINTNEXTLINE(bugprone-exception-escape): what is left to be thrown ends the program anyway
int main(int argc, char** argv) { return tiercel::run(argc, argv); }
