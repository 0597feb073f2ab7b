// SPDX-License-Identifier: Apache-2.0
//
// Why-records: for each request, the reason for every block that was not served and for every
// computed block that was not stored. Nothing in Tiercel fails a request; this is where one reads
// what happened instead.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tiercel/ids.h"
#include "tiercel/status.h"

namespace tiercel {

enum class WhyReason : uint8_t {
  // Not served:
  kNotCached = 0,      // no tier has it, and no store is asked
  kStoreAbsent = 1,    // the store says it has not got it
  kStoreNotAsked = 2,  // the store may have it, but nobody asked (no prefetch)
  kStoreFailed = 3,    // asking or getting failed; see the code
  kInFlight = 4,       // was still on its way when the load started
  kGroupMissing = 5,   // there, but another group lacks what it needs at this depth
  kNoDeviceBlock = 6,  // there, but the engine offered no device block for it
  kLoadFailed = 7,     // the load of this block, or of one before it, failed; see the code
  kNoHostSpace = 8,    // could not be fetched: the host tier had no room that may be taken
  kBehindGap = 9,      // behind a block that could not be served; not looked for
  kCleared = 10,       // the cache was being cleared
  kClosed = 11,        // the cache was being closed
  // Not stored:
  kSaveNoSpace = 32,     // no room that may be taken in the host tier
  kSaveFailed = 33,      // the copy failed or passed its deadline; see the code
  kSaveDropped = 34,     // back-pressure: the queue was full, or the request was aborted first
  kSaveParentGone = 35,  // the block before it is nowhere, so it could never be found
  kSaveFiltered = 36,    // the write policy waits for more hits
  kPutFailed = 37,       // stored in the host tier, but not in the store; see the code
  kPutDropped = 38,      // stored in the host tier, but the queue to the store was full
  kDiskPutFailed = 39,   // stored in the host tier, but not on disk; see the code
  kDiskPutDropped = 40,  // stored in the host tier, but the queue to the disk was full
  // As kDiskPutFailed; its slot has failed again and again and is not used any more.
  kDiskSlotWithdrawn = 41,
};

std::string_view to_string(WhyReason reason);

// The blocks [first, first + count) of the request, for one reason.
struct WhySpan {
  uint32_t first = 0;
  uint32_t count = 0;
  WhyReason reason = WhyReason::kNotCached;
  Code code = Code::kOk;  // where the reason says so
  friend bool operator==(const WhySpan&, const WhySpan&) = default;
};

// Everything known about one request; bounded: further spans are counted, not kept.
struct WhyRecord {
  static constexpr size_t kSpanCountMax = 16;

  RequestId request;
  uint32_t generation = 0;
  uint32_t served_blocks = 0;  // by the last load, the engine's own at the head included
  uint8_t span_count = 0;
  bool truncated = false;
  std::array<WhySpan, kSpanCountMax> spans_storage{};

  std::span<const WhySpan> spans() const { return {spans_storage.data(), span_count}; }
  // Forgets all spans: a new look at what is served.
  void start(uint32_t served) {
    served_blocks = served;
    span_count = 0;
    truncated = false;
  }
  // Joins with the last span where they touch and agree. No allocation.
  void add(WhySpan span);
  // Several lines of text for a person.
  std::string to_string() const;
};

}  // namespace tiercel
