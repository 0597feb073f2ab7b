// SPDX-License-Identifier: Apache-2.0
//
// Traces: whatever the file holds, what is read keeps its own rules and its bounds, a bad line is
// named, and leaving bad lines out changes nothing about the good ones.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/trace_reader.h"
#include "fuzz_target.h"

namespace tiercel::fuzz {
namespace {

// One file without a name for all inputs.
int file_with(std::string_view text) {
  static const int file = ::memfd_create("trace", 0);
  require(file >= 0, "there is a file to read from");
  require(::ftruncate(file, 0) == 0, "the file can be emptied");
  const ssize_t written = ::pwrite(file, text.data(), text.size(), 0);
  require(written == static_cast<ssize_t>(text.size()), "the file can be written");
  return file;
}

void check_trace(const Trace& trace, const TraceReaderOptions& options) {
  require(!trace.requests.empty(), "a trace has a request");
  require(trace.ids.size() <= options.id_count_max, "ids are bounded");
  require(options.request_count_max == 0 || trace.requests.size() <= options.request_count_max,
          "requests are bounded");
  require((trace.skipped_lines > 0) == !trace.first_skipped.empty(), "a skipped line is named");
  size_t next_id = 0;
  const TraceRequest* before = nullptr;
  for (const TraceRequest& request : trace.requests) {
    require(request.first_id == next_id, "ids stand one behind the other");
    require(request.id_count == (request.input_length + kTokensPerId - 1) / kTokensPerId,
            "a request has as many ids as blocks");
    next_id += request.id_count;
    require(before == nullptr ||
                (before->timestamp_ms <= request.timestamp_ms && before->line < request.line),
            "requests are in order");
    before = &request;
  }
  require(next_id == trace.ids.size(), "every id belongs to a request");
}

bool same(const Trace& a, const Trace& b) {
  if (a.ids != b.ids || a.requests.size() != b.requests.size()) return false;
  for (size_t i = 0; i < a.requests.size(); ++i) {
    const TraceRequest& x = a.requests[i];
    const TraceRequest& y = b.requests[i];
    if (x.timestamp_ms != y.timestamp_ms || x.line != y.line || x.input_length != y.input_length ||
        x.output_length != y.output_length) {
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace tiercel::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tiercel;  // NOLINT: the one function of this program
  fuzz::Input input({data, size});
  const uint8_t limits = input.byte();
  const std::string path = "/proc/self/fd/" + std::to_string(fuzz::file_with(input.rest()));
  TraceReaderOptions options;
  options.request_count_max = limits % 4;
  options.id_count_max = (limits & 4) != 0 ? 3 : 4096;
  options.line_bytes_max = (limits & 8) != 0 ? 64 : 4096;
  const Result<Trace> strict = read_trace(path, options);
  options.skip_bad_lines = true;
  const Result<Trace> lenient = read_trace(path, options);
  if (lenient) fuzz::check_trace(*lenient, options);
  if (!strict) {
    fuzz::require(strict.code() == Code::kInvalid, "a bad trace is invalid");
    fuzz::require(strict.error().message().starts_with(path), "an error names the file");
    return 0;
  }
  fuzz::check_trace(*strict, options);
  fuzz::require(lenient.has_value() && fuzz::same(*strict, *lenient),
                "a trace without bad lines is the same, bad lines allowed or not");
  return 0;
}
