// SPDX-License-Identifier: Apache-2.0
//
// A process of an engine that joins a plane, as a test plays it by hand: step by step, truthfully
// or not, on the test's own thread.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "base/arena.h"
#include "base/event_fd.h"
#include "base/unix_socket.h"
#include "transfer/process/messages.h"
#include "transfer/rank_channel.h"

namespace tiercel::testing {

class FakeRank {
 public:
  explicit FakeRank(const std::string& path) {
    auto socket = connect_to(path, kNoDeadline, SystemClock());
    EXPECT_TRUE(socket) << socket.error().to_string();
    if (socket) socket_ = std::move(*socket);
  }

  Status say(std::span<const std::byte> bytes, std::span<const int> fds = {}) {
    return send_message(socket_.get(), bytes, fds);
  }

  // What the plane has said so far; it has been polled.
  Result<SocketMessage> hear() {
    TIERCEL_TRY_ASSIGN(std::optional<SocketMessage> message, receive_message(socket_.get()));
    if (!message) return Error(Code::kBusy, "nothing has been said");
    return *std::move(message);
  }
  // The refusal that has been said.
  Status hear_refusal() {
    TIERCEL_TRY_ASSIGN(const SocketMessage message, hear());
    return decode_ready(message.bytes);
  }

  // Takes the welcome and opens the channel.
  void take_welcome() {
    Result<SocketMessage> message = hear();
    ASSERT_TRUE(message) << message.error().to_string();
    const auto welcome = decode_welcome(message->bytes);
    ASSERT_TRUE(welcome) << welcome.error().to_string();
    ASSERT_EQ(message->fds.size(), kWelcomeFdsMin);
    memory_ =
        Arena::map(std::move(message->fds[0]), RankChannel::bytes(welcome->ring_ops), {}).value();
    auto channel =
        RankChannel::open(memory_->memory(), {.ring_ops = welcome->ring_ops,
                                              .rank = welcome->worker.rank,
                                              .geometry = geometry_digest(welcome->geometry)});
    ASSERT_TRUE(channel) << channel.error().to_string();
    channel_.emplace(*channel);
    announced_.emplace(EventFd::adopt(std::move(message->fds[3])).value());
    ops_.emplace(channel_->ops_memory(), welcome->ring_ops);
    completions_.emplace(channel_->completions_memory(), welcome->ring_ops);
    rank_ = welcome->worker.rank;
  }

  BlockOp take_op() {
    BlockOp op;
    EXPECT_EQ(ops_->pop({&op, 1}), 1u);
    return op;
  }
  Completion completion_of(const BlockOp& op, Code code = Code::kOk) const {
    return {.job = op.job, .item = op.item, .rank = static_cast<uint16_t>(rank_), .code = code};
  }
  void complete(const Completion& completion) {
    EXPECT_EQ(completions_->push({&completion, 1}), 1u);
    Announcer(channel_->words().announced, *announced_).announce();
  }
  void announce() { Announcer(channel_->words().announced, *announced_).announce(); }

  // The counters at the head of a ring, to be written as no producer or consumer would.
  static SpscRingCounters& counters(std::span<std::byte> ring) {
    return *reinterpret_cast<SpscRingCounters*>(ring.data());
  }
  SpscRingCounters& ops_counters() { return counters(channel_->ops_memory()); }
  SpscRingCounters& completions_counters() { return counters(channel_->completions_memory()); }

  ChannelWords& words() { return channel_->words(); }

  // The plane has cut us off: nothing more can be heard.
  bool is_cut_off() {
    while (true) {
      const auto message = receive_message(socket_.get());
      if (!message) return message.code() == Code::kUnavailable;
      if (!message->has_value()) return false;
    }
  }
  void hang_up() { socket_.reset(); }
  int fd() const { return socket_.get(); }

 private:
  FileDescriptor socket_;
  std::unique_ptr<Arena> memory_;
  std::optional<RankChannel> channel_;
  std::optional<EventFd> announced_;
  std::optional<SpscConsumer<BlockOp>> ops_;
  std::optional<SpscProducer<Completion>> completions_;
  uint32_t rank_ = 0;
};

}  // namespace tiercel::testing
