// SPDX-License-Identifier: Apache-2.0
#include "transfer/process/spawner.h"

#include <cerrno>
#include <initializer_list>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/error_text.h"
#include "base/thread.h"

namespace tiercel {
namespace {

// What posix_spawn works from; the objects of the C library hold memory.
class SpawnPlan {
 public:
  SpawnPlan() {
    error_ = ::posix_spawn_file_actions_init(&actions_);
    if (error_ == 0) error_ = ::posix_spawnattr_init(&attributes_);
  }
  ~SpawnPlan() {
    ::posix_spawnattr_destroy(&attributes_);
    ::posix_spawn_file_actions_destroy(&actions_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  // 0, or the first error.
  int prepare(int socket, const std::string& log_path) {
    constexpr mode_t kOwnerOnly = S_IRUSR | S_IWUSR;
    add(::posix_spawn_file_actions_adddup2(&actions_, socket, kRankSocketFd));
    add(::posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0));
    add(::posix_spawn_file_actions_addopen(&actions_, STDOUT_FILENO, "/dev/null", O_WRONLY, 0));
    if (!log_path.empty()) {
      add(::posix_spawn_file_actions_addopen(&actions_, STDERR_FILENO, log_path.c_str(),
                                             O_WRONLY | O_CREAT | O_APPEND, kOwnerOnly));
    }
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    add(::posix_spawnattr_setsigmask(&attributes_, &none));
    add(::posix_spawnattr_setsigdefault(&attributes_, &all));
    add(::posix_spawnattr_setpgroup(&attributes_, 0));
    add(::posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
    return error_;
  }

  const posix_spawn_file_actions_t* actions() const { return &actions_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  void add(int error) {
    if (error_ == 0) error_ = error;
  }

  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
  int error_ = 0;
};

}  // namespace

Result<FileDescriptor> open_process(int64_t pid) {
  FileDescriptor process(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));
  if (!process) {
    return Error(Code::kUnavailable,
                 "process " + std::to_string(pid) + " cannot be watched: " + error_text(errno));
  }
  return process;
}

std::optional<ProcessEnd> look_at_process(int process) {
  pollfd source{.fd = process, .events = POLLIN, .revents = 0};
  if (::poll(&source, 1, 0) != 1) return std::nullopt;
  return ProcessEnd{"has ended", true};
}

std::optional<ProcessEnd> reap_process(int process) {
  if (!look_at_process(process)) return std::nullopt;
  siginfo_t info{};
  if (::waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(process), &info,
               WEXITED | WNOHANG) != 0) {
    // No child of ours, or reaped already (an engine that ignores SIGCHLD).
    return ProcessEnd{"has ended", true};
  }
  if (info.si_pid == 0) return ProcessEnd{"has ended", false};
  return ProcessEnd{(info.si_code == CLD_EXITED ? "exited with status " : "was killed by signal ") +
                        std::to_string(info.si_status),
                    true};
}

void kill_process(int process) {
  // ESRCH: it has ended.
  static_cast<void>(::syscall(SYS_pidfd_send_signal, process, SIGKILL, nullptr, 0));
}

template <typename T>
std::vector<Spawner::CacheLine> Spawner::ring_memory(uint32_t capacity) {
  std::vector<CacheLine> lines((spsc_ring_bytes<T>(capacity) + kCacheLineBytes - 1) /
                               kCacheLineBytes);
  format_spsc_ring(as_bytes(lines));
  return lines;
}

Result<std::unique_ptr<Spawner>> Spawner::start(SpawnerOptions options, uint32_t requests_max,
                                                EventFd& replies) {
  TIERCEL_TRY_ASSIGN(EventFd wake, EventFd::create());
  std::unique_ptr<Spawner> spawner(
      new Spawner(std::move(options), requests_max, replies, std::move(wake)));
  TIERCEL_TRY_ASSIGN(spawner->thread_,
                     start_thread("tiercel-spawner", [self = spawner.get()] { self->run(); }));
  return spawner;
}

Spawner::Spawner(SpawnerOptions options, uint32_t requests_max, EventFd& replies, EventFd wake)
    : options_(std::move(options)),
      replies_(replies),
      wake_(std::move(wake)),
      requests_memory_(ring_memory<Request>(requests_max)),
      replies_memory_(ring_memory<Reply>(requests_max)),
      requests_in_(as_bytes(requests_memory_), requests_max),
      replies_out_(as_bytes(replies_memory_), requests_max),
      requests_out_(as_bytes(requests_memory_), requests_max),
      replies_in_(as_bytes(replies_memory_), requests_max) {}

Spawner::~Spawner() {
  if (!thread_.joinable()) return;
  stopping_.store(true);
  wake_.signal();
  thread_.join();
  // Nobody else knows these.
  while (const std::optional<SpawnReply> reply = next_reply()) {
    if (!reply->process) continue;
    kill_process(reply->process.get());
    pollfd ended{.fd = reply->process.get(), .events = POLLIN, .revents = 0};
    ::poll(&ended, 1, -1);
    reap_process(reply->process.get());
  }
  Request request;
  while (requests_out_.pop({&request, 1}) == 1) FileDescriptor(request.socket).reset();
}

void Spawner::abandon() { thread_.detach(); }

void Spawner::request(uint32_t rank, uint32_t start, FileDescriptor socket) {
  const Request request{rank, start, socket.release()};
  const size_t taken = requests_in_.push({&request, 1});
  TIERCEL_ASSERT(taken == 1, "more requests than were announced");
  wake_.signal();
}

std::optional<SpawnReply> Spawner::next_reply() {
  Reply reply;
  if (replies_out_.pop({&reply, 1}) == 0) return std::nullopt;
  return SpawnReply{reply.rank,  reply.start, reply.pid, FileDescriptor(reply.process),
                    reply.error, reply.call};
}

void Spawner::run() {
  while (!stopping_.load()) {
    Request request;
    if (requests_out_.pop({&request, 1}) == 1) {
      const Reply reply = spawn(request);
      ::close(request.socket);
      const size_t taken = replies_in_.push({&reply, 1});
      TIERCEL_ASSERT(taken == 1, "more replies than requests were announced");
      replies_.signal();
      continue;
    }
    pollfd source{.fd = wake_.fd(), .events = POLLIN, .revents = 0};
    ::poll(&source, 1, -1);
    wake_.drain();
  }
}

Spawner::Reply Spawner::spawn(const Request& request) const {
  Reply reply{.rank = request.rank, .start = request.start};
  std::vector<std::string> words = {
      options_.program,           "--socket-fd", std::to_string(kRankSocketFd), "--parent",
      std::to_string(::getpid()), "--rank",      std::to_string(request.rank)};
  words.insert(words.end(), options_.arguments.begin(), options_.arguments.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  SpawnPlan plan;
  reply.call = "posix_spawn";
  reply.error = plan.prepare(request.socket, options_.log_path);
  pid_t pid = 0;
  if (reply.error == 0) {
    reply.error = ::posix_spawn(&pid, options_.program.c_str(), plan.actions(), plan.attributes(),
                                argv.data(), environ);
  }
  if (reply.error != 0) return reply;
  Result<FileDescriptor> process = open_process(pid);
  if (!process) {
    // It cannot be watched, so it must not be.
    reply.error = errno;
    reply.call = "pidfd_open";
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return reply;
  }
  reply.pid = pid;
  reply.process = process->release();
  return reply;
}

}  // namespace tiercel
