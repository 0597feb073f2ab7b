// SPDX-License-Identifier: Apache-2.0
//
// FaultyDiskIo: a DiskIo that fails where the test says, above any other.
//
//   faulty->add({.action = DiskFaultAction::kError, .error = EIO,
//                .kind = DiskIoKind::kWrite, .file = DiskFile::kMetadata, .first = 3});
//
// makes the third write to the metadata file from now on fail. Faults are asked in the order in
// which they were added; the first one that strikes decides, but all of them count the request.
//
// Ownership: owns the DiskIo below. Whatever hangs when it is destroyed is dropped: its memory is
//            not touched any more.
// Threads:   one at a time.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/event_fd.h"
#include "base/file_descriptor.h"
#include "tier/disk/disk_io.h"

namespace tiercel::testing {

enum class DiskFaultAction : uint8_t {
  kError,      // −error, and nothing is done
  kTornError,  // −error, though `bytes` were read or written
  kShort,      // only `bytes` are read or written, and the result says so
  kLost,       // nothing is done, and the result says that all went well
  kHang,       // no answer until release(); then it is carried out
  kFlipBit,    // of a read: one bit of what it brought is another
};

struct DiskFault {
  DiskFaultAction action = DiskFaultAction::kError;
  int error = EIO;
  // Of kShort and kTornError; nothing: half of the request, rounded down to whole pages for the
  // data file. At most the request's length.
  std::optional<uint64_t> bytes{};
  uint64_t bit = 0;  // of kFlipBit: counted from the start of the memory, modulo what was read

  // Which requests: of this kind and file (nothing: any) the `first`-th, counted from 1 and from
  // when the fault was added, and the `count` - 1 after it.
  std::optional<DiskIoKind> kind{};
  std::optional<DiskFile> file{};
  uint64_t first = 1;
  uint64_t count = 1;
};
inline constexpr uint64_t kDiskFaultForEver = UINT64_MAX;

class FaultyDiskIo final : public DiskIo {
 public:
  explicit FaultyDiskIo(std::unique_ptr<DiskIo> inner);
  ~FaultyDiskIo() override;

  void add(const DiskFault& fault);
  void clear();    // no more faults; what hangs goes on hanging
  void release();  // what hangs is handed to the DiskIo below
  size_t hanging() const { return hanging_.size(); }
  uint64_t struck() const { return struck_; }  // requests that a fault befell
  // Of these, writes and syncs that were confirmed and not carried out.
  uint64_t lied() const { return lied_; }

  size_t capacity() const override;
  void submit(std::span<const DiskIoRequest> requests) override;
  size_t poll(std::span<DiskIoCompletion> out) override;
  int completion_fd() const override;
  std::string describe() const override { return "faulty, above " + inner_->describe(); }

 private:
  struct Active {
    DiskFault fault;
    uint64_t seen = 0;  // requests that it could have befallen
  };
  // A request that the DiskIo below has, by the token that it has there.
  struct Below {
    DiskIoRequest request;
    std::optional<int64_t> result;  // told instead of the true one
    std::optional<uint64_t> bit;    // to flip
  };

  std::optional<DiskFault> strike(const DiskIoRequest& request);
  void hand_over(const DiskIoRequest& request, std::optional<DiskFault> fault);
  void complete(uint64_t token, int64_t result);

  std::unique_ptr<DiskIo> inner_;
  std::vector<Active> faults_;
  uint64_t struck_ = 0;
  uint64_t lied_ = 0;
  std::vector<DiskIoRequest> batch_;  // for the DiskIo below; empty between calls
  std::unordered_map<uint64_t, Below> below_;
  uint64_t next_token_ = 0;
  std::deque<DiskIoRequest> hanging_;
  std::deque<DiskIoCompletion> completed_;  // by a fault
  // Readable when the one below is or `completed_` has something; nothing if the one below has no
  // descriptor.
  std::optional<EventFd> own_event_;
  FileDescriptor both_;
};

}  // namespace tiercel::testing
