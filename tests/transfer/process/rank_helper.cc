// SPDX-License-Identifier: Apache-2.0
//
// tiercel-test-rank: hosts a rank as tiercel-rank does, but plays a part at a chosen place. Where a
// part stops, it stops by SIGSTOP, which the test waits for: no time is involved.
//   tiercel-test-rank … --part PART
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/unix_socket.h"
#include "transfer/device_copier.h"
#include "transfer/process/messages.h"
#include "transfer/process/rank_session.h"
#include "transfer/process/spawner.h"

namespace tiercel {
namespace {

constexpr uint32_t kBlocks = 4;
// The block whose copy stops.
constexpr uint32_t kStoppingBlock = 1;

std::string_view argument(int argc, char** argv, std::string_view name) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (argv[i] == name) return argv[i + 1];
  }
  return "";
}

class StoppingCopier final : public DeviceCopier {
 public:
  StoppingCopier(std::string_view part, uint64_t payload_bytes)
      : part_(part),
        memory_(payload_bytes * kBlocks),
        inner_(ContiguousCopier::create({{memory_, payload_bytes}}).value()) {}

  uint32_t block_count(GroupId group) const override { return inner_.block_count(group); }
  uint32_t layer_count(GroupId group) const override { return inner_.layer_count(group); }
  uint64_t payload_bytes(GroupId group) const override { return inner_.payload_bytes(group); }

  Status gather(GroupId group, std::span<DeviceCopy> copies, LayerObserver* observer) override {
    stop_at(copies, "stop_in_save");
    return inner_.gather(group, copies, observer);
  }
  Status scatter(GroupId group, std::span<DeviceCopy> copies, LayerObserver* observer) override {
    stop_at(copies, "stop_in_load");
    return inner_.scatter(group, copies, observer);
  }

 private:
  void stop_at(std::span<const DeviceCopy> copies, std::string_view part) const {
    for (const DeviceCopy& copy : copies) {
      if (part_ == part && copy.block.value() == kStoppingBlock) ::raise(SIGSTOP);
    }
  }

  const std::string_view part_;
  std::vector<std::byte> memory_;
  ContiguousCopier inner_;
};

// Has nothing, and stops when it is closed.
class StoppingStore final : public Store {
 public:
  Result<StoreRequestId> submit_exists(std::span<const ObjectKey>, TimePoint) override {
    return nothing();
  }
  Result<StoreRequestId> submit_get(std::span<const StoreGetItem>, TimePoint) override {
    return nothing();
  }
  Result<StoreRequestId> submit_put(std::span<const StorePutItem>, TimePoint) override {
    return nothing();
  }
  Result<StoreRequestId> submit_remove(std::span<const ObjectKey>, TimePoint) override {
    return nothing();
  }
  Result<StoreRequestId> submit_clear(std::string_view, TimePoint) override { return nothing(); }
  size_t poll(std::vector<StoreCompletion>*) override { return 0; }
  int completion_fd() const override { return -1; }
  Status register_memory(std::span<std::byte>) override { return {}; }
  StoreStats stats() const override { return {}; }
  Status close(TimePoint) override {
    ::raise(SIGSTOP);
    return {};
  }

 private:
  static Result<StoreRequestId> nothing() { return Error(Code::kUnavailable, "a test's store"); }
};

// Says hello and takes the welcome, but never says that it is ready.
int stop_before_ready(int socket) {
  const SystemClock clock;
  if (!send_message(socket, encode_hello({})) ||
      !wait_readable(socket, kNoDeadline, clock, "the welcome") || !receive_message(socket)) {
    return 1;
  }
  ::raise(SIGSTOP);
  return 1;
}

int say_other_version(int socket) {
  std::vector<std::byte> hello = encode_hello({});
  hello[4] = std::byte{99};
  static_cast<void>(send_message(socket, hello).has_value());
  const SystemClock clock;
  static_cast<void>(wait_readable(socket, kNoDeadline, clock, "the refusal").has_value());
  return 1;
}

int run(int argc, char** argv) {
  const std::string_view part = argument(argc, argv, "--part");
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return 1;
  if (part == "exit") return 3;
  if (part == "be_killed") ::raise(SIGKILL);
  if (part == "stop_before_hello") ::raise(SIGSTOP);
  if (part == "stop_before_ready") return stop_before_ready(kChildSocketFd);
  if (part == "other_version") return say_other_version(kChildSocketFd);

  RankParts parts;
  parts.rank = static_cast<uint32_t>(std::stoul(std::string(argument(argc, argv, "--rank"))));
  // As the fixture's geometry has it.
  StoppingCopier copier(part, 300 + 71 * parts.rank);
  parts.copier = &copier;
  if (part == "stop_in_close") parts.store = std::make_unique<StoppingStore>();
  auto session = open_rank_session(FileDescriptor(kChildSocketFd), std::move(parts));
  return session && (*session)->run() ? 0 : 1;
}

}  // namespace
}  // namespace tiercel

int main(int argc, char** argv) { return tiercel::run(argc, argv); }
