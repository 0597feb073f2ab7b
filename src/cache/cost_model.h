// SPDX-License-Identifier: Apache-2.0
//
// CostModel: how many of the blocks that are there are worth loading. It is fed with how long jobs
// took and how fast the engine computes, and finds the cut at which loading what is before it and
// computing the rest is expected to take the shortest time. docs/load-or-recompute.md.
//
// A transfer is measured from its submission to the arrival of its last block, as a function of
// what had been submitted to the same path before it and had not arrived: the queue that is known.
// What others put into a queue of a store is in its measured speed. An arrival is noticed at a
// poll, and an engine polls once a step: it happened some time since the poll before. So what is
// learned is that the time lies between two bounds, and an expectation that lies there too stays as
// it is.
//
// A path on which nothing at all came until a deadline is *suspended*: nothing is chosen that needs
// it. When its time is over a probe may go, a small transfer that no request waits for. The same
// way a path that is merely thought too slow is measured again from time to time.
//
// Threads: control thread only. Deterministic; time is told.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "tiercel/clock.h"
#include "tiercel/load_or_recompute.h"
#include "tiercel/status.h"

#include "cache/two_term_fit.h"

namespace tiercel {

// Seconds; infinite where a path cannot be used or the deadline would pass.
struct CutTimes {
  double load = 0;     // until the blocks are there, what the request waits anyway taken off
  double prefill = 0;  // of what follows
  double total = 0;    // both, as far as they do not overlap
};

// How long everything takes with the given speeds: the formula behind every choice. `ahead` are the
// units before the transfer on each path, `usable` says which paths may be used at all.
class CutCosts {
 public:
  CutCosts(const CutQuestion& question, uint32_t block_tokens, const PrefillRate& prefill,
           double overlap);

  // Seconds of each path until all of `work` has come through it, nothing else considered.
  using PathSeconds = std::array<double, kTransferPathCount>;
  // `blocks` of question.works; `paths` how long their work takes; `last_block` one block on the
  // way from the host tier to the device.
  CutTimes times(uint32_t blocks, const PathSeconds& paths, double last_block) const;
  // Of tokens behind `blocks` blocks.
  double prefill_seconds(uint32_t blocks) const;

 private:
  const CutQuestion& question_;
  const uint32_t block_tokens_;
  const PrefillRate prefill_;
  const double overlap_;
};

// Seconds that it takes to compute `tokens` behind `context` earlier ones.
double prefill_seconds(const PrefillRate& rate, double context, double tokens);

class CostModel {
 public:
  CostModel(const LoadOrRecomputeConfig& config, uint32_t block_tokens);

  bool enabled() const { return config_.enabled; }

  // What is known of a transfer when it is submitted; goes back to ended().
  struct Transfer {
    TimePoint started;
    TimePoint deadline = kNoDeadline;
    uint64_t units_ahead = 0;
    uint64_t arrived_before = 0;  // on the path
    double expected = 0;          // seconds
    bool is_probe = false;
  };
  // A job of `units` has been submitted.
  Transfer submitted(TransferPath path, uint64_t units, TimePoint now,
                     TimePoint deadline = kNoDeadline);
  // A block of it has ended, in whatever way.
  void left(TransferPath path, uint64_t units, bool arrived);
  // Its last block has ended between `earliest` and `now`. `units_arrived` is what came (or, for a
  // question, was answered); `outcome`: ok if everything was answered, timeout if the deadline has
  // passed, else what went wrong, which says nothing about speed. True: the path has just been
  // suspended.
  bool ended(TransferPath path, const Transfer& transfer, uint64_t units_arrived, Code outcome,
             TimePoint earliest, TimePoint now);

  void observe_prefill(uint64_t tokens, uint64_t context_tokens, Duration duration, TimePoint now);

  // Never more than is expected to be better than loading less; the deepest of equals.
  LoadChoice choose(const CutQuestion& question) const;

  // How long a load may take before waiting for it is given up: three times what is expected, or
  // what computing its blocks takes if that is longer, behind what the request waits anyway.
  static Duration patience(const LoadChoice& choice, Duration wait);

  // Whether a transfer should find out how fast the path is, for its own sake.
  bool wants_probe(TransferPath path, TimePoint now) const;
  // Whether one may go: none is out, and the last one was not just now.
  bool may_probe(TransferPath path, TimePoint now) const;
  // It has been submitted as `transfer`.
  void probes(TransferPath path, Transfer& transfer);
  uint32_t probe_blocks() const { return config_.probe_blocks; }
  // Blocks of a probe of which one is `units`: so many that it lasts for several polls as far as is
  // known, else its end would say little.
  uint32_t probe_blocks(TransferPath path, uint64_t units, Duration poll_interval) const;
  // A probe is given up after so long: longer each time that nothing came.
  Duration probe_time(TransferPath path) const {
    return std::max(config_.suspension, at(path).suspension);
  }

  LoadEstimates estimates() const;

 private:
  struct Path {
    explicit Path(Duration half_life) : fit(half_life) {}
    TwoTermFit fit;
    uint64_t units_ahead = 0;
    uint64_t arrived = 0;  // blocks, ever
    uint64_t measurements = 0;
    TimePoint measured_at;  // last
    bool suspended = false;
    bool probing = false;  // a probe is out
    Duration suspension{0};
    TimePoint suspended_until;
    TimePoint probe_not_before;  // after a probe that ended without an answer
    uint64_t suspensions = 0;
  };

  const Path& at(TransferPath path) const { return paths_[static_cast<size_t>(path)]; }
  Path& at(TransferPath path) { return paths_[static_cast<size_t>(path)]; }
  double seconds(TransferPath path, uint64_t units) const;
  void observe(TransferPath path, uint64_t units, double least, double most, TimePoint now);
  void suspend(Path& path, TimePoint now);
  TransferRate rate(TransferPath path) const;
  PrefillRate prefill_rate() const;

  const LoadOrRecomputeConfig config_;
  const uint32_t block_tokens_;
  std::array<Path, kTransferPathCount> paths_;
  TwoTermFit prefill_;
};

}  // namespace tiercel
