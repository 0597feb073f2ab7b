// SPDX-License-Identifier: Apache-2.0
#include "store/mooncake/segment_peer.h"

#include <cerrno>
#include <chrono>
#include <utility>

#include <sys/epoll.h>

#include "base/error_text.h"
#include "base/memfd.h"

namespace tiercel {
namespace {

constexpr Duration kRetry = std::chrono::seconds(1);

}  // namespace

Result<std::unique_ptr<SegmentPeer>> SegmentPeer::create(std::string path) {
  TIERCEL_TRY(check_socket_path(path));
  FileDescriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) {
    return Error(Code::kUnavailable, "epoll_create1 failed: " + limit_error_text(errno));
  }
  return std::unique_ptr<SegmentPeer>(new SegmentPeer(std::move(path), std::move(epoll)));
}

SegmentPeer::SegmentPeer(std::string path, FileDescriptor epoll)
    : path_(std::move(path)), epoll_(std::move(epoll)) {}

bool SegmentPeer::poll(TimePoint now) {
  const mooncake::SegmentPlace before = place_;
  Status status;
  if (!socket_ && now >= retry_at_) status = connect();
  if (status && socket_) status = take_all();
  if (!status) {
    problem_ = status.error().message();
    retry_at_ = now + kRetry;
    socket_.reset();
    memfd_.reset();
    place_ = {};
  }
  return place_ != before;
}

Status SegmentPeer::connect() {
  TIERCEL_TRY_ASSIGN(socket_, connect_now(path_));
  TIERCEL_TRY_ASSIGN(const SocketPeer peer, socket_peer(socket_.get()));
  TIERCEL_TRY(check_same_user(peer));
  epoll_event event{};
  event.events = EPOLLIN;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket_.get(), &event) == 0) return {};
  return Error(Code::kUnavailable, "its socket cannot be watched: " + limit_error_text(errno));
}

Status SegmentPeer::take_all() {
  while (true) {
    TIERCEL_TRY_ASSIGN(std::optional<SocketMessage> message, receive_message(socket_.get()));
    if (!message) return {};
    TIERCEL_TRY(take(*std::move(message)));
  }
}

Status SegmentPeer::take(SocketMessage message) {
  TIERCEL_TRY_ASSIGN(mooncake::SegmentNews news, mooncake::decode_segment(message.bytes));
  if (message.fds.size() != 1) {
    return Error(Code::kInvalid, "its message has " + std::to_string(message.fds.size()) +
                                     " descriptors instead of one");
  }
  TIERCEL_TRY(check_memfd(message.fds[0].get(), news.bytes, "its memory"));
  memfd_ = std::move(message.fds[0]);
  bytes_ = news.bytes;
  place_ = std::move(news.place);
  problem_.clear();
  return {};
}

std::string SegmentPeer::problem() const {
  if (place_.base != 0) return "";
  return "the segment at '" + path_ +
         "' cannot be read here: " + (problem_.empty() ? "it is not in the pool" : problem_);
}

Status SegmentPeer::close(const Clock&, Duration) {
  socket_.reset();
  memfd_.reset();
  place_ = {};
  return {};
}

}  // namespace tiercel
