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

#include "tiercel/clock.h"
#include "tiercel/health.h"
#include "tiercel/ids.h"
#include "tiercel/status.h"

namespace tiercel {

enum class WhyReason : uint8_t {
  // Not served:
  kNotCached = 0,         // no tier has it, and no store is asked
  kStoreAbsent = 1,       // the store says it has not got it
  kStoreNotAsked = 2,     // the store may have it, but nobody asked (no prefetch)
  kStoreFailed = 3,       // asking or getting failed; see the code
  kInFlight = 4,          // was still on its way when the load started
  kGroupMissing = 5,      // there, but another group lacks what it needs at this depth
  kNoDeviceBlock = 6,     // there, but the engine offered no device block for it
  kLoadFailed = 7,        // the load of this block, or of one before it, failed; see the code
  kNoHostSpace = 8,       // could not be fetched: the host tier had no room that may be taken
  kBehindGap = 9,         // behind a block that could not be served; not looked for
  kCleared = 10,          // the cache was being cleared
  kClosed = 11,           // the cache was being closed
  kNotWorthLoading = 12,  // there, but the engine was expected to compute it sooner
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

// Load or recompute: one choice, what was expected of it, and how long it took. `blocks` count from
// the first block that the engine had not got.
struct LoadChoice {
  bool made = false;               // false: there was nothing to choose, or nobody was asked
  uint32_t first_block = 0;        // the engine has what is before it
  uint32_t blocks_there = 0;       // that could be loaded
  uint32_t blocks_chosen = 0;      // of these, from the first one on
  Duration load_expected{0};       // of blocks_chosen; what the request waits anyway is taken off
  Duration prefill_expected{0};    // of what follows, with that choice
  Duration recompute_expected{0};  // of everything, with nothing loaded
  Duration time_saved{0};          // expected: recomputing it all, less this choice
  bool measured = false;           // the load has ended, in whatever way
  Duration load_measured{0};
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
  LoadChoice prefetch_choice;  // of the last prefetch, for the way to the host tier
  LoadChoice load_choice;      // of the last load
  // What the store said when blocks of this request ended in store_failed or put_failed; empty if
  // none did, or it said nothing.
  ReasonText store_reason;

  std::span<const WhySpan> spans() const { return {spans_storage.data(), span_count}; }
  // Forgets all spans: a new look at what is served.
  void start(uint32_t served) {
    served_blocks = served;
    span_count = 0;
    truncated = false;
    store_reason = {};
  }
  // Joins with the last span where they touch and agree. No allocation.
  void add(WhySpan span);
  // Several lines of text for a person.
  std::string to_string() const;
};

}  // namespace tiercel
