// SPDX-License-Identifier: Apache-2.0
#include "cli/trace_reader.h"

#include <string>

#include <gtest/gtest.h>

#include "support/paths.h"
#include "support/temp_folder.h"

namespace tiercel {
namespace {

std::string request(uint64_t timestamp, uint64_t id) {
  return "{\"timestamp\": " + std::to_string(timestamp) +
         ", \"input_length\": 500, \"output_length\": 1, \"hash_ids\": [" + std::to_string(id) +
         "]}";
}

class TraceReader : public ::testing::Test {
 protected:
  // Reads `content`; a refusal is shown with the folder's own path left out.
  std::string refusal(const std::string& content, const TraceReaderOptions& options = {}) {
    const std::string path = folder_.write("trace.jsonl", content);
    const auto trace = read_trace(path, options);
    if (trace) return "";
    std::string message = trace.error().message();
    const size_t at = message.find(path);
    EXPECT_EQ(at, 0u) << message;
    return message.substr(path.size());
  }
  Trace read(const std::string& content, const TraceReaderOptions& options = {}) {
    auto trace = read_trace(folder_.write("trace.jsonl", content), options);
    EXPECT_TRUE(trace.has_value()) << trace.error().message();
    return trace ? *std::move(trace) : Trace();
  }
  TraceReaderOptions skipping() {
    TraceReaderOptions options;
    options.skip_bad_lines = true;
    return options;
  }

  testing::TempFolder folder_;
};

TEST_F(TraceReader, RequestsKeepTheirOrderAndLines) {
  const Trace trace = read(request(1, 10) + "\n\n" + request(1, 11) + "\n" + request(5, 12));
  ASSERT_EQ(trace.requests.size(), 3u);
  EXPECT_EQ(trace.requests[1].line, 3u);
  EXPECT_EQ(trace.requests[2].timestamp_ms, 5u);
  EXPECT_EQ(trace.ids_of(trace.requests[2])[0], 12u);
  EXPECT_EQ(trace.skipped_lines, 0u);
}

TEST_F(TraceReader, CarriageReturnsAndABlankLastLineAreAccepted) {
  EXPECT_EQ(read(request(1, 10) + "\r\n" + request(2, 11) + "\r\n\r\n").requests.size(), 2u);
}

TEST_F(TraceReader, ReadsNoFurtherThanTheLimit) {
  TraceReaderOptions options;
  options.request_count_max = 1;
  EXPECT_EQ(read(request(1, 10) + "\nnot even JSON\n", options).requests.size(), 1u);
}

TEST_F(TraceReader, MissingEmptyAndCompressedFilesAreRefused) {
  for (const TraceReaderOptions& options : {TraceReaderOptions(), skipping()}) {
    const auto missing = read_trace(folder_.path("missing"), options);
    ASSERT_FALSE(missing.has_value());
    EXPECT_EQ(missing.code(), Code::kNotFound);
    EXPECT_FALSE(read_trace(folder_.path(""), options).has_value());
    EXPECT_EQ(refusal("", options), ": the file is empty; a trace has one request a line");
    EXPECT_EQ(refusal("\n \n", options), ": there is no request in this file");
    EXPECT_NE(refusal("\x1f\x8b\x08 and so on", options).find("compressed with gzip"),
              std::string::npos);
  }
}

TEST_F(TraceReader, BrokenJsonInLine7000IsFound) {
  std::string content;
  for (int line = 1; line < 7000; ++line) content += request(7, 1) + "\n";
  content += "{\"timestamp\": 8, \n" + request(9, 1) + "\n";
  EXPECT_EQ(refusal(content).substr(0, 26), ":7000: broken JSON at byte");
}

TEST_F(TraceReader, TimestampsMustNotGoBackwards) {
  EXPECT_EQ(refusal(request(5, 1) + "\n" + request(4, 1) + "\n"),
            ":2: timestamp is 4, earlier than that of the request before it; allowed: 5 or later");
}

TEST_F(TraceReader, EveryMessageOfALineHasFileAndLine) {
  EXPECT_EQ(refusal(request(5, 1) + "\n{\"timestamp\": -5}\n"),
            ":2: timestamp is -5; allowed: an integer from 0 to 4000000000000");
}

TEST_F(TraceReader, ALineThatIsTooLongIsRefused) {
  TraceReaderOptions options;
  options.line_bytes_max = 1000;
  EXPECT_EQ(refusal(request(5, 1) + "\n" + std::string(100000, ' ') + "\n", options),
            ":2: the line is longer than 1000 B; allowed: one request a line");
}

TEST_F(TraceReader, ATraceWithTooManyIdsIsRefused) {
  TraceReaderOptions options;
  options.id_count_max = 1;
  EXPECT_EQ(refusal(request(5, 1) + "\n" + request(5, 1) + "\n", options),
            ":2: the trace has more than 1 hash_ids up to here; replay fewer requests (limit)");
}

TEST_F(TraceReader, BadLinesCanBeSkippedAndCounted) {
  TraceReaderOptions options = skipping();
  options.line_bytes_max = 1000;
  const Trace trace = read("garbage\n" + request(5, 1) + "\n" + request(4, 2) + "\n" +
                               std::string(5000, 'x') + "\n" + request(6, 3) + "\n{}",
                           options);
  ASSERT_EQ(trace.requests.size(), 2u);
  EXPECT_EQ(trace.ids, (std::vector<uint64_t>{1, 3}));
  EXPECT_EQ(trace.skipped_lines, 4u);
  EXPECT_NE(trace.first_skipped.find("trace.jsonl:1: broken JSON"), std::string::npos);
}

TEST_F(TraceReader, ATraceOfNothingButBadLinesIsRefused) {
  const std::string message = refusal("garbage\nmore\n", skipping());
  EXPECT_NE(message.find("there is no request in this file; 2 bad lines were skipped, first "),
            std::string::npos)
      << message;
}

TEST_F(TraceReader, TheShippedTraceIsWhole) {
  const auto trace = read_trace(testing::source_path("data/conversation_trace.jsonl"));
  ASSERT_TRUE(trace.has_value()) << trace.error().message();
  EXPECT_EQ(trace->requests.size(), 12031u);
  EXPECT_EQ(trace->ids.size(), 288500u);
}

}  // namespace
}  // namespace tiercel
