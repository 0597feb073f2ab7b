// SPDX-License-Identifier: Apache-2.0
//
// Spawner: starts processes from a thread of its own, so that the control thread does not wait for
// exec. How they are, and that they die with this process, is start_child's business.
//
// The thread lives as long as this object, because what dies with its parent dies with the *thread*
// that started it.
//
// Ownership: the processes are the caller's to watch and reap.
// Threads:   one control thread; the spawning thread is inside.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <sys/types.h>

#include "tiercel/status.h"

#include "base/child_start.h"
#include "base/event_fd.h"
#include "base/file_descriptor.h"
#include "transfer/spsc_ring.h"

namespace tiercel {

struct SpawnerOptions {
  std::string program;
  std::vector<std::string> arguments;  // after the program's own
  std::string log_path;                // empty: our standard error
};

// How a start has ended.
struct SpawnReply {
  uint32_t rank = 0;
  uint32_t start = 0;      // as in the request
  int64_t pid = 0;         // 0: it failed
  FileDescriptor process;  // pidfd
  int error = 0;           // errno
  const char* call = "";   // that failed
};

class Spawner {
 public:
  // `replies` is signalled for each reply and outlives this object; `requests_max` is a power of
  // two. kUnavailable if the system gives no descriptor or thread.
  static Result<std::unique_ptr<Spawner>> start(SpawnerOptions options, uint32_t requests_max,
                                                EventFd& replies);
  // Ends the thread, and with it whatever it has started.
  ~Spawner();
  Spawner(const Spawner&) = delete;
  Spawner& operator=(const Spawner&) = delete;

  // Starts a process with `socket` as its descriptor kChildSocketFd. Never more than requests_max
  // without a reply.
  void request(uint32_t rank, uint32_t start, FileDescriptor socket);
  std::optional<SpawnReply> next_reply();

  // In a forked child, where there is no such thread.
  void abandon();

 private:
  struct Request {
    uint32_t rank = 0;
    uint32_t start = 0;
    int socket = -1;
  };
  // As it travels.
  struct Reply {
    uint32_t rank = 0;
    uint32_t start = 0;
    int64_t pid = 0;
    int process = -1;
    int error = 0;
    const char* call = "";
  };
  struct CacheLine {
    alignas(kCacheLineBytes) std::array<std::byte, kCacheLineBytes> bytes;
  };
  template <typename T>
  static std::vector<CacheLine> ring_memory(uint32_t capacity);
  static std::span<std::byte> as_bytes(std::vector<CacheLine>& lines) {
    return std::as_writable_bytes(std::span(lines));
  }

  Spawner(SpawnerOptions options, uint32_t requests_max, EventFd& replies, EventFd wake);
  void run();
  Reply spawn(const Request& request) const;

  const SpawnerOptions options_;
  EventFd& replies_;
  EventFd wake_;
  std::vector<CacheLine> requests_memory_;
  std::vector<CacheLine> replies_memory_;
  SpscProducer<Request> requests_in_;   // control thread
  SpscConsumer<Reply> replies_out_;     // control thread
  SpscConsumer<Request> requests_out_;  // spawning thread
  SpscProducer<Reply> replies_in_;      // spawning thread
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace tiercel
