// SPDX-License-Identifier: Apache-2.0
//
// LineReader: a text file, line by line, in bounded memory whatever the file holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tiercel/status.h"

#include "base/file_descriptor.h"

namespace tiercel {

// Lines end with LF or CRLF, the last one also with the end of the file.
// Ownership: owns the descriptor and its buffer. Threads: one.
class LineReader {
 public:
  struct Limits {
    size_t line_bytes_max = 16u << 20;      // longer lines are reported, not kept
    uint64_t skipped_bytes_max = 1u << 30;  // of one such line; then reading stops
  };

  // kNotFound or kInvalid with the path and the reason (missing, a folder, not readable).
  static Result<LineReader> open(const std::string& path, const Limits& limits);
  static Result<LineReader> open(const std::string& path) { return open(path, Limits()); }

  enum class Outcome : uint8_t { kLine, kTooLong, kEnd };

  // The next line without its end, in *line, valid until the next call. kTooLong: the line was
  // longer than allowed and has been skipped. Errors: reading failed, or a line did not end at all.
  Result<Outcome> next(std::string_view* line);

  // Of the line that next() returned last, from 1.
  uint64_t line_number() const { return line_number_; }
  // The first bytes of the file, at most four; reads them if need be.
  Result<std::string> peek();

 private:
  LineReader(FileDescriptor file, std::string path, const Limits& limits);
  // Reads more behind end_, making room first. False at the end of the file.
  Result<bool> fill();
  // Drops everything up to the next line end.
  Result<Outcome> skip_line();

  FileDescriptor file_;
  std::string path_;  // as messages show it
  Limits limits_;
  std::vector<char> buffer_;
  size_t begin_ = 0;  // of what has not been returned
  size_t end_ = 0;    // of what has been read
  uint64_t line_number_ = 0;
};

}  // namespace tiercel
