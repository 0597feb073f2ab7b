// SPDX-License-Identifier: Apache-2.0
#include "cli/line_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>

#include "base/error_text.h"
#include "base/quantity.h"

namespace tiercel {
namespace {

constexpr size_t kFirstBufferBytes = 256u << 10;

Error system_error(const std::string& path, const char* what, int number) {
  return Error(number == ENOENT ? Code::kNotFound : Code::kInvalid,
               path + ": " + what + ": " + error_text(number));
}

}  // namespace

LineReader::LineReader(FileDescriptor file, std::string path, const Limits& limits)
    : file_(std::move(file)),
      path_(std::move(path)),
      limits_(limits),
      buffer_(std::min(kFirstBufferBytes, limits.line_bytes_max + 2)) {}

Result<LineReader> LineReader::open(const std::string& path, const Limits& limits) {
  const std::string shown = escaped_path(path);
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return system_error(shown, "cannot be opened", errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return system_error(shown, "cannot be read", errno);
  if (S_ISDIR(status.st_mode)) {
    return Error(Code::kInvalid, shown + " is a folder; name a file in it");
  }
  return LineReader(std::move(file), shown, limits);
}

Result<bool> LineReader::fill() {
  if (end_ == buffer_.size()) {
    if (begin_ > 0) {
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    } else {
      // Room for the longest line and its end.
      buffer_.resize(std::min(2 * buffer_.size(), limits_.line_bytes_max + 2));
    }
  }
  while (true) {
    const ssize_t count = ::read(file_.get(), buffer_.data() + end_, buffer_.size() - end_);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error(path_, "cannot be read", errno);
    end_ += static_cast<size_t>(count);
    return count > 0;
  }
}

Result<std::string> LineReader::peek() {
  while (end_ - begin_ < 4) {
    TIERCEL_TRY_ASSIGN(const bool more, fill());
    if (!more) break;
  }
  return std::string(buffer_.data() + begin_, std::min<size_t>(4, end_ - begin_));
}

Result<LineReader::Outcome> LineReader::next(std::string_view* line) {
  size_t searched = 0;
  while (true) {
    const char* start = buffer_.data() + begin_;
    const void* found = end_ - begin_ > searched
                            ? std::memchr(start + searched, '\n', end_ - begin_ - searched)
                            : nullptr;
    size_t length = end_ - begin_;
    bool complete = found != nullptr;
    if (complete) {
      length = static_cast<size_t>(static_cast<const char*>(found) - start);
    } else {
      searched = length;
      if (length >= limits_.line_bytes_max + 2) return skip_line();
      TIERCEL_TRY_ASSIGN(const bool more, fill());
      if (more) continue;
      start = buffer_.data() + begin_;
      if (length == 0) return Outcome::kEnd;
    }
    ++line_number_;
    begin_ += length + (complete ? 1 : 0);
    if (length > 0 && start[length - 1] == '\r') --length;
    *line = std::string_view(start, length);
    return length > limits_.line_bytes_max ? Outcome::kTooLong : Outcome::kLine;
  }
}

Result<LineReader::Outcome> LineReader::skip_line() {
  ++line_number_;
  uint64_t skipped = 0;
  while (true) {
    const char* start = buffer_.data() + begin_;
    const void* found = std::memchr(start, '\n', end_ - begin_);
    if (found != nullptr) {
      begin_ += static_cast<size_t>(static_cast<const char*>(found) - start) + 1;
      return Outcome::kTooLong;
    }
    skipped += end_ - begin_;
    begin_ = end_ = 0;
    if (skipped > limits_.skipped_bytes_max) {
      return Error(Code::kInvalid,
                   path_ + ":" + std::to_string(line_number_) + ": the line does not end within " +
                       std::to_string(limits_.skipped_bytes_max) + " bytes; this is not a trace");
    }
    TIERCEL_TRY_ASSIGN(const bool more, fill());
    if (!more) return Outcome::kTooLong;
  }
}

}  // namespace tiercel
