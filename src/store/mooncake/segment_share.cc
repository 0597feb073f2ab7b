// SPDX-License-Identifier: Apache-2.0
#include "store/mooncake/segment_share.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error_text.h"
#include "base/unix_socket.h"

namespace tiercel {
namespace {

bool watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

// What a dead process has left there would make it impossible to listen.
Status remove_stale_socket(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) return {};
  if (connect_now(path)) {
    return Error(Code::kUnavailable,
                 "another process offers its segment at '" + path +
                     "'; give memory in one process, such as tiercel store serve, and name only "
                     "segment_socket in the others");
  }
  ::unlink(path.c_str());
  return {};
}

}  // namespace

Result<std::unique_ptr<SegmentShare>> SegmentShare::create(std::string path, int memfd,
                                                           uint64_t bytes) {
  TIERCEL_TRY(check_socket_path(path));
  TIERCEL_TRY(remove_stale_socket(path));
  FileDescriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  TIERCEL_TRY_ASSIGN(FileDescriptor listener, listen_on(path));
  if (!epoll || !watch(epoll.get(), listener.get())) {
    const int error = errno;
    ::unlink(path.c_str());
    return Error(Code::kUnavailable,
                 "'" + path + "' cannot be watched: " + limit_error_text(error));
  }
  return std::unique_ptr<SegmentShare>(
      new SegmentShare(std::move(path), memfd, bytes, std::move(epoll), std::move(listener)));
}

SegmentShare::SegmentShare(std::string path, int memfd, uint64_t bytes, FileDescriptor epoll,
                           FileDescriptor listener)
    : path_(std::move(path)),
      memfd_(memfd),
      bytes_(bytes),
      owner_(::getpid()),
      epoll_(std::move(epoll)),
      listener_(std::move(listener)) {}

SegmentShare::~SegmentShare() {
  if (::getpid() == owner_) ::unlink(path_.c_str());
}

bool SegmentShare::tell(int peer) const {
  const std::vector<std::byte> message = mooncake::encode_segment(0, 0, bytes_, place_);
  return send_message(peer, message, {{memfd_}}).has_value();
}

void SegmentShare::let_in() {
  while (true) {
    Result<std::optional<FileDescriptor>> came = accept_from(listener_.get());
    if (!came || !*came) return;
    FileDescriptor peer = std::move(**came);
    const Result<SocketPeer> who = socket_peer(peer.get());
    if (!who || !check_same_user(*who) || !watch(epoll_.get(), peer.get())) continue;
    if (place_.base == 0 || tell(peer.get())) peers_.push_back(std::move(peer));
  }
}

void SegmentShare::poll(const mooncake::SegmentPlace& place) {
  std::array<epoll_event, 16> events{};
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const int fd = events[static_cast<size_t>(i)].data.fd;
    if (fd == listener_.get()) {
      let_in();
      continue;
    }
    // They have nothing to say but their end.
    std::erase_if(peers_, [fd](const FileDescriptor& peer) { return peer.get() == fd; });
  }
  if (place == place_) return;
  place_ = place;
  // Who does not read what little there is comes again when its connection ends.
  std::erase_if(peers_, [this](const FileDescriptor& peer) { return !tell(peer.get()); });
}

}  // namespace tiercel
