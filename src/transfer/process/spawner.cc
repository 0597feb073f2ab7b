// SPDX-License-Identifier: Apache-2.0
#include "transfer/process/spawner.h"

#include <utility>

#include <poll.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/child_start.h"
#include "base/process.h"
#include "base/thread.h"

namespace tiercel {
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
  ChildStart start;
  start.program = options_.program;
  start.parent = ::getpid();
  start.arguments = {options_.program,
                     "--socket-fd",
                     std::to_string(kChildSocketFd),
                     "--parent",
                     std::to_string(start.parent),
                     "--rank",
                     std::to_string(request.rank)};
  start.arguments.insert(start.arguments.end(), options_.arguments.begin(),
                         options_.arguments.end());
  start.socket = request.socket;
  start.log_path = options_.log_path;
  const StartedChild child = start_child(start);
  reply.error = child.error;
  reply.call = child.call;
  if (child.pid == 0) return reply;
  FileDescriptor process = watch_child(child.pid, &reply.error);
  if (!process) {
    reply.call = "pidfd_open";
    return reply;
  }
  reply.pid = child.pid;
  reply.process = process.release();
  return reply;
}

}  // namespace tiercel
