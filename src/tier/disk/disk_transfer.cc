// SPDX-License-Identifier: Apache-2.0
#include "tier/disk/disk_transfer.h"

#include <algorithm>
#include <cerrno>

namespace tiercel {
namespace {

Code code_of(int error) {
  // A quota or the limit of a file's size is lack of space too: the disk itself is well.
  const bool is_lack_of_space = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return is_lack_of_space ? Code::kNoSpace : Code::kUnavailable;
}

}  // namespace

bool DiskTransfer::end(Code code) {
  code_ = code;
  return true;
}

bool DiskTransfer::take_nothing(Code code_at_last) {
  return ++idle_answers_ > kIdleAnswersMax && end(code_at_last);
}

bool DiskTransfer::take_error(int error) {
  if (error == EINTR || error == EAGAIN) return take_nothing(Code::kUnavailable);
  return end(code_of(error));
}

bool DiskTransfer::take(int64_t result) {
  if (result < 0) return take_error(static_cast<int>(-result));
  if (rest_.kind == DiskIoKind::kSync) return end(Code::kOk);
  auto moved = std::min(static_cast<size_t>(result), rest_.memory.size());
  if (moved == rest_.memory.size()) return end(Code::kOk);
  const bool is_read = rest_.kind == DiskIoKind::kRead;
  if (moved == 0 && is_read) return end(Code::kCorrupt);
  // The rest of a data file's transfer begins at a whole page too, as direct I/O wants it.
  if (rest_.file == DiskFile::kData) moved -= moved % kDiskAlignmentBytes;
  if (moved == 0) return take_nothing(is_read ? Code::kCorrupt : Code::kUnavailable);
  idle_answers_ = 0;
  rest_.offset += moved;
  rest_.memory = rest_.memory.subspan(moved);
  return false;
}

}  // namespace tiercel
