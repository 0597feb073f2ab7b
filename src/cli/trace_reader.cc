// SPDX-License-Identifier: Apache-2.0
#include "cli/trace_reader.h"

#include <string_view>

#include "base/option_table.h"
#include "cli/line_reader.h"
#include "cli/trace_line.h"

namespace tiercel {
namespace {

class TraceReader {
 public:
  TraceReader(const std::string& path, const TraceReaderOptions& options)
      : path_(escaped_path(path)), options_(options) {}

  Result<Trace> read(LineReader& lines);

 private:
  Status take_line(LineReader::Outcome outcome, std::string_view text, uint64_t number);
  Status add_request(uint64_t number);
  bool full() const {
    return options_.request_count_max != 0 && trace_.requests.size() >= options_.request_count_max;
  }

  const std::string path_;  // as messages show it
  const TraceReaderOptions& options_;
  Trace trace_;
  TraceLine line_;
};

Status TraceReader::add_request(uint64_t number) {
  if (!trace_.requests.empty() && line_.timestamp_ms < trace_.requests.back().timestamp_ms) {
    return Error(Code::kInvalid, "timestamp is " + std::to_string(line_.timestamp_ms) +
                                     ", earlier than that of the request before it; allowed: " +
                                     std::to_string(trace_.requests.back().timestamp_ms) +
                                     " or later");
  }
  TraceRequest request;
  request.timestamp_ms = line_.timestamp_ms;
  request.line = number;
  request.input_length = line_.input_length;
  request.output_length = line_.output_length;
  request.first_id = trace_.ids.size();
  request.id_count = static_cast<uint32_t>(line_.hash_ids.size());
  trace_.ids.insert(trace_.ids.end(), line_.hash_ids.begin(), line_.hash_ids.end());
  trace_.requests.push_back(request);
  return {};
}

Status TraceReader::take_line(LineReader::Outcome outcome, std::string_view text, uint64_t number) {
  if (outcome == LineReader::Outcome::kTooLong) {
    return Error(Code::kInvalid, "the line is longer than " +
                                     format_bytes(options_.line_bytes_max) +
                                     "; allowed: one request a line");
  }
  TIERCEL_TRY(parse_trace_line(text, &line_));
  return add_request(number);
}

Result<Trace> TraceReader::read(LineReader& lines) {
  while (!full()) {
    std::string_view text;
    TIERCEL_TRY_ASSIGN(const LineReader::Outcome outcome, lines.next(&text));
    if (outcome == LineReader::Outcome::kEnd) break;
    if (outcome == LineReader::Outcome::kLine &&
        text.find_first_not_of(" \t") == std::string_view::npos) {
      continue;
    }
    const Status taken = take_line(outcome, text, lines.line_number());
    if (!taken) {
      std::string message =
          path_ + ":" + std::to_string(lines.line_number()) + ": " + taken.error().message();
      if (!options_.skip_bad_lines) return Error(Code::kInvalid, std::move(message));
      if (trace_.skipped_lines++ == 0) trace_.first_skipped = std::move(message);
    }
    if (trace_.ids.size() > options_.id_count_max) {
      return Error(Code::kInvalid, path_ + ":" + std::to_string(lines.line_number()) +
                                       ": the trace has more than " +
                                       std::to_string(options_.id_count_max) +
                                       " hash_ids up to here; replay fewer requests (limit)");
    }
  }
  if (trace_.requests.empty()) {
    std::string message = path_ + ": there is no request in this file";
    if (trace_.skipped_lines > 0) {
      message += "; " + std::to_string(trace_.skipped_lines) + " bad lines were skipped, first " +
                 trace_.first_skipped;
    }
    return Error(Code::kInvalid, std::move(message));
  }
  return std::move(trace_);
}

}  // namespace

Result<Trace> read_trace(const std::string& path, const TraceReaderOptions& options) {
  LineReader::Limits limits;
  limits.line_bytes_max = options.line_bytes_max;
  TIERCEL_TRY_ASSIGN(LineReader lines, LineReader::open(path, limits));
  TIERCEL_TRY_ASSIGN(const std::string head, lines.peek());
  if (head.empty()) {
    return Error(Code::kInvalid,
                 escaped_path(path) + ": the file is empty; a trace has one request a line");
  }
  if (head.substr(0, 2) == "\x1f\x8b") {
    return Error(Code::kInvalid, escaped_path(path) +
                                     ": the file is compressed with gzip; unpack it first, as in "
                                     "gunzip -c FILE.gz > FILE");
  }
  return TraceReader(path, options).read(lines);
}

}  // namespace tiercel
