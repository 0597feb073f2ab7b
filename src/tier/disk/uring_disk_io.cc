// SPDX-License-Identifier: Apache-2.0
#include "tier/disk/uring_disk_io.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <liburing.h>
#include <poll.h>
#include <sys/resource.h>

#include "base/assert.h"
#include "base/error_text.h"
#include "base/event_fd.h"

namespace tiercel {
namespace {

// The kernel registers at most this much in one piece.
constexpr size_t kPieceBytes = size_t{1} << 30;
// The kernel moves less than 2 GiB at once; what is longer becomes short, as with pread().
constexpr size_t kMovedBytesMax = size_t{1} << 30;

std::string memlock_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return ", limit of locked memory (ulimit -l) is " + std::to_string(limit.rlim_cur) + " bytes";
}

Error unavailable(int error) {
  std::string reason = error_text(error);
  if (error == EPERM) {
    int disabled = 0;
    if (std::ifstream("/proc/sys/kernel/io_uring_disabled") >> disabled && disabled != 0) {
      reason += ", kernel.io_uring_disabled is " + std::to_string(disabled);
    }
  }
  // Rings themselves count as locked memory with some kernels.
  if (error == ENOMEM) reason += memlock_limit();
  return Error(Code::kUnavailable, std::move(reason));
}

class UringDiskIo final : public DiskIo {
 public:
  UringDiskIo(const std::array<int, kDiskFileCount>& fds, std::string_view mode,
              uint32_t queue_depth, EventFd event)
      : fds_(fds), mode_(mode), queue_depth_(queue_depth), event_(std::move(event)) {
    unsubmitted_.reserve(queue_depth_);
  }

  ~UringDiskIo() override {
    if (!ring_made_) return;
    // The kernel never saw these.
    taken_ -= unsubmitted_.size();
    unsubmitted_.clear();
    wait_for_kernel();
    // The end of a ring takes effect some time after io_uring_queue_exit(): what is given back here
    // is free at once, above all the locks on the files.
    if (files_registered_) io_uring_unregister_files(&ring_);
    if (!registered_.empty()) io_uring_unregister_buffers(&ring_);
    io_uring_queue_exit(&ring_);
  }

  Status start(const DiskIoOptions& options) {
    TIERCEL_TRY(make_ring());
    // Plain descriptors do the same with a little more work; a bad one shows at its requests.
    files_registered_ = io_uring_register_files(&ring_, fds_.data(), kDiskFileCount) == 0;
    if (const int error = io_uring_register_eventfd(&ring_, event_.fd()); error < 0) {
      return unavailable(-error);
    }
    if (options.register_memory && !options.memory.empty()) register_memory(options.memory);
    return {};
  }

  size_t capacity() const override { return queue_depth_ - taken_; }

  void submit(std::span<const DiskIoRequest> requests) override {
    TIERCEL_ASSERT(requests.size() <= capacity(), "no more is submitted than there is room for");
    taken_ += requests.size();
    for (const DiskIoRequest& request : requests) {
      if (ring_error_ != 0) {
        failed_.push_back({.token = request.token, .result = -ring_error_});
        continue;
      }
      prepare(request);
      unsubmitted_.push_back(request.token);
    }
    submit_prepared();
    if (!failed_.empty()) event_.signal();
  }

  size_t poll(std::span<DiskIoCompletion> out) override {
    // First: what completes from here on signals again.
    event_.drain();
    submit_prepared();
    size_t count = 0;
    for (; count < out.size() && !failed_.empty(); ++count) {
      out[count] = failed_.front();
      failed_.pop_front();
    }
    io_uring_cqe* cqe = nullptr;
    while (count < out.size() && io_uring_peek_cqe(&ring_, &cqe) == 0 && cqe != nullptr) {
      out[count++] = {.token = io_uring_cqe_get_data64(cqe), .result = cqe->res};
      io_uring_cqe_seen(&ring_, cqe);
    }
    taken_ -= count;
    if (!failed_.empty() || io_uring_cq_ready(&ring_) > 0) event_.signal();
    return count;
  }

  int completion_fd() const override { return event_.fd(); }

  std::string describe() const override {
    return "io_uring, " + mode_ + ", " +
           (registered_.empty() ? "plain buffers" + why_plain_ : "registered buffers");
  }

 private:
  // Requests may be submitted, waited for and given up by different threads one after the other, so
  // that IORING_SETUP_SINGLE_ISSUER and DEFER_TASKRUN are not for this ring.
  Status make_ring() {
    io_uring_params params{};
    // Completions wait until this thread enters the kernel or sleeps instead of interrupting it.
    params.flags = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL;
    int error = io_uring_queue_init_params(queue_depth_, &ring_, &params);
    if (error == -EINVAL) {  // before Linux 5.19
      params = {};
      error = io_uring_queue_init_params(queue_depth_, &ring_, &params);
    }
    if (error < 0) return unavailable(-error);
    ring_made_ = true;
    // Older ones lack operations, lose completions, or take one token for their own.
    if ((params.features & IORING_FEAT_EXT_ARG) == 0) {
      return Error(Code::kUnavailable, "the kernel is older than 5.11");
    }
    TIERCEL_ASSERT(params.cq_entries >= queue_depth_, "completions never overflow");
    return try_ring();
  }

  // Some sandboxes give out rings that then take nothing.
  Status try_ring() {
    io_uring_prep_nop(io_uring_get_sqe(&ring_));
    io_uring_cqe* cqe = nullptr;
    int result = 0;
    do {
      result = io_uring_submit_and_wait(&ring_, 1);
    } while (result == -EINTR);
    if (result < 0) return unavailable(-result);
    do {
      result = io_uring_wait_cqe(&ring_, &cqe);
    } while (result == -EINTR);
    if (result < 0) return unavailable(-result);
    io_uring_cqe_seen(&ring_, cqe);
    return {};
  }

  void register_memory(std::span<std::byte> memory) {
    std::vector<iovec> pieces;
    for (size_t done = 0; done < memory.size(); done += kPieceBytes) {
      pieces.push_back({.iov_base = memory.data() + done,
                        .iov_len = std::min(kPieceBytes, memory.size() - done)});
    }
    const int error =
        io_uring_register_buffers(&ring_, pieces.data(), static_cast<unsigned>(pieces.size()));
    if (error == 0) {
      registered_ = memory;
      return;
    }
    why_plain_ = " (registering " + std::to_string(memory.size()) +
                 " bytes: " + unavailable(-error).message() + ")";
  }

  // The registered piece that all of `memory` lies in.
  std::optional<int> piece_of(std::span<const std::byte> memory) const {
    const auto begin = reinterpret_cast<uintptr_t>(memory.data());
    const auto base = reinterpret_cast<uintptr_t>(registered_.data());
    if (memory.empty() || begin < base) return std::nullopt;
    const size_t offset = begin - base;
    if (offset >= registered_.size() || memory.size() > registered_.size() - offset) {
      return std::nullopt;
    }
    const size_t piece = offset / kPieceBytes;
    if ((offset + memory.size() - 1) / kPieceBytes != piece) return std::nullopt;
    return static_cast<int>(piece);
  }

  void prepare(const DiskIoRequest& request) {
    // There is one for each request that is taken.
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    TIERCEL_ASSERT(sqe != nullptr, "the ring has an entry for each request");
    const auto file = static_cast<size_t>(request.file);
    const int fd = files_registered_ ? static_cast<int>(file) : fds_[file];
    std::byte* const memory = request.memory.data();
    const auto length = static_cast<unsigned>(std::min(request.memory.size(), kMovedBytesMax));
    const std::optional<int> piece = piece_of(request.memory.first(length));
    switch (request.kind) {
      case DiskIoKind::kRead:
        if (piece) {
          io_uring_prep_read_fixed(sqe, fd, memory, length, request.offset, *piece);
        } else {
          io_uring_prep_read(sqe, fd, memory, length, request.offset);
        }
        break;
      case DiskIoKind::kWrite:
        if (piece) {
          io_uring_prep_write_fixed(sqe, fd, memory, length, request.offset, *piece);
        } else {
          io_uring_prep_write(sqe, fd, memory, length, request.offset);
        }
        break;
      case DiskIoKind::kSync:
        io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
        break;
    }
    if (files_registered_) io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
    io_uring_sqe_set_data64(sqe, request.token);
  }

  // Hands over what is prepared. Where the kernel has no room just now, the rest is tried again at
  // the next call; where it refuses for good, the rest has failed, and so does all that comes.
  void submit_prepared() {
    while (!unsubmitted_.empty()) {
      const int result = io_uring_submit(&ring_);
      if (result > 0) {
        const auto count = std::min(static_cast<size_t>(result), unsubmitted_.size());
        unsubmitted_.erase(unsubmitted_.begin(),
                           unsubmitted_.begin() + static_cast<std::ptrdiff_t>(count));
        continue;
      }
      if (result == -EINTR) continue;
      if (result == 0 || result == -EAGAIN || result == -EBUSY) {
        event_.signal();
        return;
      }
      ring_error_ = -result;
      for (const uint64_t token : unsubmitted_) {
        failed_.push_back({.token = token, .result = result});
      }
      unsubmitted_.clear();
    }
  }

  void wait_for_kernel() {
    std::array<DiskIoCompletion, 16> dropped;
    while (true) {
      while (poll(dropped) > 0) continue;
      if (taken_ == 0) return;
      // Not in the ring: this works, too, where io_uring_enter() has come to be refused.
      pollfd source{.fd = event_.fd(), .events = POLLIN, .revents = 0};
      ::poll(&source, 1, -1);
    }
  }

  const std::array<int, kDiskFileCount> fds_;
  const std::string mode_;
  const uint32_t queue_depth_;
  EventFd event_;
  io_uring ring_{};
  bool ring_made_ = false;
  bool files_registered_ = false;
  std::span<std::byte> registered_;  // empty: none
  std::string why_plain_;

  size_t taken_ = 0;                   // submitted and not yet polled
  std::vector<uint64_t> unsubmitted_;  // tokens of prepared entries that the kernel has not taken
  std::deque<DiskIoCompletion> failed_;
  int ring_error_ = 0;  // errno that ended all submitting
};

}  // namespace

Result<std::unique_ptr<DiskIo>> make_uring_disk_io(const std::array<int, kDiskFileCount>& fds,
                                                   std::string_view mode,
                                                   const DiskIoOptions& options) {
  TIERCEL_TRY_ASSIGN(EventFd event, EventFd::create());
  auto io = std::make_unique<UringDiskIo>(fds, mode, options.queue_depth, std::move(event));
  TIERCEL_TRY(io->start(options));
  return io;
}

}  // namespace tiercel
