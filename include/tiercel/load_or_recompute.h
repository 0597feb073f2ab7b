// SPDX-License-Identifier: Apache-2.0
//
// Load or recompute: what the cache is told, and what it has learned, of the speed of its tiers and
// of the engine's prefill, so that it loads only what is expected to be there sooner than the
// engine could compute it.
//
// The answer is a cut point in the prefix: blocks before it are loaded, those behind it are left to
// prefill. docs/load-or-recompute.md says how the cut is chosen, how speeds are learned and how a
// tier that was given up is tried again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tiercel/clock.h"
#include "tiercel/ids.h"
#include "tiercel/key.h"
#include "tiercel/status.h"
#include "tiercel/why.h"

namespace tiercel {

// What has a speed of its own on a block's way to the device.
enum class TransferPath : uint8_t {
  kHostToDevice = 0,
  kDiskToHost = 1,
  kStoreToHost = 2,
  kStoreQuestion = 3,  // whether the store has a block: keys instead of bytes
};
inline constexpr size_t kTransferPathCount = 4;
// "host_to_device", "disk_to_host", "store_to_host", "store_question"
std::string_view to_string(TransferPath path);

// Time of a transfer = latency + units / units_per_second, behind what is on its way already. Units
// are bytes of the rank with the largest slice, or keys on kStoreQuestion.
struct TransferRate {
  Duration latency{0};
  double units_per_second = 1;
};

// Time of prefill = tokens / tokens_per_second × (1 + context / context_doubling), where context is
// the mean number of tokens that the computed ones look back on.
struct PrefillRate {
  double tokens_per_second = 10000;
  // Tokens before a token at which it costs twice as much as the first one; 0: never.
  double context_doubling = 0;
};

// Blocks that are loaded up to one cut: from the first block that the engine has not got, in units,
// by path.
struct CutWork {
  std::array<uint64_t, kTransferPathCount> units{};
  // A block before the cut is on its way into the host tier for someone else.
  bool waits_for_fill = false;
};

// What there is to choose from. All times are from `now` on.
struct CutQuestion {
  TimePoint now;
  std::span<const BlockKey> keys;  // of the request, from its first block on
  uint32_t first_block = 0;        // the engine has what is before it
  // works[i]: for a cut behind i blocks; works[0] is empty. So at most works.size() − 1 are loaded.
  std::span<const CutWork> works;
  // Tokens behind the last block that could be loaded; they are computed in any case.
  uint64_t tokens_behind = 0;
  uint64_t block_units = 0;  // bytes of one block, all groups
  bool staged = false;       // prefetch: the host tier first, the device later
  Duration wait{0};          // staged: the request waits so long anyway
  Duration poll{0};          // staged: a busy engine looks so often for what has come; 0: at once
  Duration time_left = Duration::max();  // until the deadline
};

struct LoadChoice;  // tiercel/why.h

// Told of every choice, at once, from within the call that made it; calls nothing of the cache.
class LoadChoiceListener {
 public:
  virtual ~LoadChoiceListener() = default;
  virtual void chosen(RequestId request, const CutQuestion& question, const LoadChoice& choice) = 0;
};

struct LoadOrRecomputeConfig {
  bool enabled = false;  // without it everything that is there is loaded

  // Taken for true until there are measurements.
  std::array<TransferRate, kTransferPathCount> transfers = {
      TransferRate{std::chrono::microseconds(50), 10e9},
      TransferRate{std::chrono::microseconds(300), 2e9},
      TransferRate{std::chrono::milliseconds(2), 1e9},
      TransferRate{std::chrono::milliseconds(1), 1e6},
  };
  PrefillRate prefill;

  // Share of a load that runs beside the prefill of what follows it, 0 to 1: 0 where a request is
  // computed only when all its copies have arrived, nearly 1 where the engine waits layer by layer.
  double overlap = 0;
  // A measurement counts half after so long; more than 0.
  Duration half_life = std::chrono::seconds(30);
  // A path on which nothing came until a deadline is left alone for so long, twice as long each
  // time that a trial ends in the same way; more than 0, and at least as much.
  Duration suspension = std::chrono::seconds(1);
  Duration suspension_max = std::chrono::seconds(60);
  // A path that is thought too slow is tried again when the last measurement is so old, with a
  // transfer that no request waits for; more than 0.
  Duration probe_after = std::chrono::seconds(10);
  // Of such a transfer at least, more where the engine polls seldom; 0: never tried; at most 64.
  uint32_t probe_blocks = 8;

  LoadChoiceListener* listener = nullptr;  // outlives the cache

  // kInvalid with the option's name, the value and the allowed range.
  Status validate() const;
};

// What is believed at present.
struct TransferEstimate {
  TransferRate rate;
  uint64_t measurements = 0;  // ever
  uint64_t suspensions = 0;   // ever
  uint64_t units_ahead = 0;   // submitted and not arrived
  bool suspended = false;
};
struct LoadEstimates {
  std::array<TransferEstimate, kTransferPathCount> transfers;
  PrefillRate prefill;
  uint64_t prefill_measurements = 0;
};

}  // namespace tiercel
