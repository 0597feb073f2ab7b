// SPDX-License-Identifier: Apache-2.0
//
// SharedStats: the RankStats of one rank while it works, as other threads and processes may read
// them.
//
// Threads: one writes, any read. Counters are independent: a reader may see one ahead of another.
// From a writer that lies it gets wrong numbers, never a value that does not exist.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "tiercel/transfer.h"

namespace tiercel {

class SharedStats {
 public:
  // `bytes` of payload count only if the operation was ok.
  void count_end(OpKind kind, Code code, uint64_t bytes) {
    Path& path = paths_[static_cast<size_t>(kind)];
    add(path.ops, 1);
    if (code == Code::kOk) {
      add(path.bytes, bytes);
      return;
    }
    if (code != Code::kNotFound) add(path.failed, 1);
    if (code == Code::kCorrupt) add(path.corrupt, 1);
  }

  void count_busy(OpKind kind, Duration time) {
    add(paths_[static_cast<size_t>(kind)].busy_ns, static_cast<uint64_t>(time.count()));
  }

  void set_store(const StoreHealth& health) { store_.set(health); }
  void set_disk(const StoreHealth& health, uint64_t read_bytes, uint64_t written_bytes,
                uint64_t syncs) {
    disk_.set(health);
    set(disk_read_bytes_, read_bytes);
    set(disk_written_bytes_, written_bytes);
    set(disk_syncs_, syncs);
  }

  // All of them at once.
  void publish(const RankStats& stats) {
    for (size_t i = 0; i < kOpKindCount; ++i) {
      const PathStats& from = stats.paths[i];
      Path& path = paths_[i];
      set(path.ops, from.ops);
      set(path.failed, from.failed);
      set(path.corrupt, from.corrupt);
      set(path.bytes, from.bytes);
      set(path.busy_ns, from.busy_ns);
    }
    set_store(stats.store);
    set_disk(stats.disk, stats.disk_read_bytes, stats.disk_written_bytes, stats.disk_syncs);
  }

  StoreCondition disk_condition() const { return disk_.condition(); }

  RankStats read() const {
    RankStats stats;
    for (size_t i = 0; i < kOpKindCount; ++i) {
      const Path& path = paths_[i];
      stats.paths[i] = {.ops = get(path.ops),
                        .failed = get(path.failed),
                        .corrupt = get(path.corrupt),
                        .bytes = get(path.bytes),
                        .busy_ns = get(path.busy_ns)};
    }
    store_.read_into(stats.store);
    disk_.read_into(stats.disk);
    stats.disk_read_bytes = get(disk_read_bytes_);
    stats.disk_written_bytes = get(disk_written_bytes_);
    stats.disk_syncs = get(disk_syncs_);
    return stats;
  }

 private:
  using Counter = std::atomic<uint64_t>;
  struct Path {
    Counter ops{0}, failed{0}, corrupt{0}, bytes{0}, busy_ns{0};
  };
  class Health {
   public:
    void set(const StoreHealth& health) {
      // Condition and cause change together.
      SharedStats::set(state_, static_cast<uint64_t>(health.condition) |
                                   (static_cast<uint64_t>(health.cause) << kCauseShift));
      SharedStats::set(opened_, health.opened);
      SharedStats::set(refused_, health.refused);
    }
    StoreCondition condition() const { return condition_in(get(state_), StoreCondition::kNone); }
    void read_into(StoreHealth& health) const {
      const uint64_t state = get(state_);
      const auto cause = static_cast<Code>(state >> kCauseShift & 0xff);
      health.condition = condition_in(state, health.condition);
      if (cause <= Code::kInternal) health.cause = cause;
      health.opened = get(opened_);
      health.refused = get(refused_);
    }

   private:
    static constexpr unsigned kCauseShift = 8;
    // `otherwise`: for a value that does not exist.
    static StoreCondition condition_in(uint64_t state, StoreCondition otherwise) {
      const auto condition = static_cast<StoreCondition>(state & 0xff);
      return condition <= StoreCondition::kOpen ? condition : otherwise;
    }
    Counter state_{0}, opened_{0}, refused_{0};
  };

  static uint64_t get(const Counter& counter) { return counter.load(std::memory_order_relaxed); }
  static void set(Counter& counter, uint64_t value) {
    counter.store(value, std::memory_order_relaxed);
  }
  // With one writer, a load and a store do what a locked addition would, without its price.
  static void add(Counter& counter, uint64_t value) { set(counter, get(counter) + value); }

  std::array<Path, kOpKindCount> paths_;
  Health store_, disk_;
  Counter disk_read_bytes_{0}, disk_written_bytes_{0}, disk_syncs_{0};
};

}  // namespace tiercel
