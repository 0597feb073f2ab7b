// SPDX-License-Identifier: Apache-2.0
//
// `mooncake:`, a Mooncake Store pool behind the Store contract. docs/mooncake.md.
//
// The client of the pool lives in a process of its own (sidecar.h), so that no call of it can
// block, crash or otherwise change this one. Submissions become messages of one kind each; payload
// lies in memory that both processes map: that which was registered with its memfd, or, for other
// and for small scattered objects, a buffer of the store's own through which it is copied.
//
// What happens at a deadline depends on whose memory is at stake. A question ends as timeout at
// once, and so does what is in the store's own buffer. What the sidecar transfers from or to the
// caller's memory stays open until it has answered; if it does not for `stuck_after` more, it is
// killed, and then the memory is certainly quiet.
//
// Deadlines run on the injected clock, as seen by poll(); completion_fd() becomes readable by real
// time.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/store.h"

#include "store/mooncake/mooncake_options.h"
#include "store/mooncake/segment_source.h"
#include "store/mooncake/sidecar.h"
#include "store/mooncake/transfer_buffer.h"
#include "store/mooncake/wire.h"
#include "store/wake_up.h"

namespace tiercel {

class StoreRegistry;

// Threads: one, as every Store; a thread inside starts and reaps the sidecar.
class MooncakeStore final : public Store {
 public:
  // Starts nothing yet; completion_fd() asks for the poll() that starts the process of a segment.
  // `clock` outlives the store. kUnavailable if the system has no descriptor left, kNoSpace for a
  // buffer or a segment that does not fit.
  static Result<std::unique_ptr<MooncakeStore>> create(const MooncakeOptions& options,
                                                       const Clock& clock);

  Result<StoreRequestId> submit_exists(std::span<const ObjectKey> keys,
                                       TimePoint deadline) override;
  Result<StoreRequestId> submit_get(std::span<const StoreGetItem> items,
                                    TimePoint deadline) override;
  Result<StoreRequestId> submit_put(std::span<const StorePutItem> items,
                                    TimePoint deadline) override;
  Result<StoreRequestId> submit_remove(std::span<const ObjectKey> keys,
                                       TimePoint deadline) override;
  Result<StoreRequestId> submit_clear(std::string_view prefix, TimePoint deadline) override;
  size_t poll(std::vector<StoreCompletion>* completions) override;
  int completion_fd() const override { return wake_up_.fd(); }
  Status register_memory(std::span<std::byte>) override { return {}; }
  Status register_shared_memory(std::span<std::byte> memory, int memfd) override;
  bool wants_shared_memory() const override { return true; }
  // What the pool holds is not known.
  StoreStats stats() const override { return counts_; }
  std::string state() const override;
  Status close(TimePoint deadline) override;

  // For tests and reports.
  const Sidecar& sidecar() const { return *sidecar_; }
  // Of this node; null if none is given and none is had.
  const SegmentSource* segment() const { return segment_.get(); }

 private:
  struct Item {
    ObjectKey key;
    // Without empty ones and with adjacent ones joined.
    std::vector<std::span<std::byte>> pieces;
    uint32_t index = 0;  // in its request
    uint64_t bytes() const;
  };

  struct OpenRequest {
    std::vector<Code> codes;
    size_t open_items = 0;
  };

  // Items of one request that go into one message.
  struct Chunk {
    mooncake::Request kind = mooncake::Request::kExists;
    StoreRequestId request;
    TimePoint deadline;
    std::vector<Item> items;
    std::string prefix;         // of a clear
    bool is_copied = false;     // through the buffer
    uint64_t buffer_bytes = 0;  // that it takes of it
    size_t buffer_offset = 0;
    TimePoint sent;
    bool has_ended = false;  // for its request; the answer is only waited for
    // Whether the sidecar may touch the caller's memory for it.
    bool is_in_place() const { return kind_moves_bytes() && !is_copied; }
    bool kind_moves_bytes() const;
  };
  using Chunks = std::deque<std::unique_ptr<Chunk>>;
  // In this order.
  enum Urgency : size_t { kQuestions, kGets, kRemovals, kPuts, kUrgencyCount };

  struct SharedMemory {
    std::span<std::byte> memory;
    size_t number = 0;  // the sidecar's
  };

  MooncakeStore(const MooncakeOptions& options, const Clock& clock,
                std::unique_ptr<Sidecar> sidecar, std::unique_ptr<SegmentSource> segment,
                TransferBuffer buffer, size_t buffer_number, WakeUp wake_up);

  Status accepts() const;
  template <typename MakeItem>
  Result<StoreRequestId> submit(size_t count, uint64_t StoreStats::*counter, TimePoint deadline,
                                MakeItem make_item);
  struct Draft;
  void add_to_draft(Draft& draft, mooncake::Request kind, Item item);
  void queue_draft(Draft& draft);
  Chunks& queue_of(mooncake::Request kind);

  void watch_segment(TimePoint now);
  Status close_sidecar(Duration allowed);
  void take_replies(TimePoint now);
  void finish(Chunk& chunk, const mooncake::Message& reply, TimePoint now);
  void end_all(Code code, TimePoint now);
  void end_chunk(Chunk& chunk, Code code);
  void end_item(StoreRequestId request, uint32_t index, Code code);
  void give_back_buffer(Chunk& chunk);
  void expire(TimePoint now);
  void dispatch(TimePoint now);
  void dispatch_from(Chunks& queue, size_t in_flight_max, TimePoint now);
  bool dispatch_one(std::unique_ptr<Chunk>& chunk, TimePoint now);
  void copy_in(Chunk& chunk);
  void copy_out(const Chunk& chunk, size_t item, uint64_t offset);
  std::vector<std::byte> encode(uint64_t id, const Chunk& chunk) const;
  const SharedMemory* shared_memory_of(const Item& item) const;
  void progress(TimePoint now);
  void announce();
  void arm_timer(TimePoint now);
  TimePoint kill_time(const Chunk& chunk) const;

  const MooncakeOptions options_;
  const Clock& clock_;
  const std::unique_ptr<Sidecar> sidecar_;
  const std::unique_ptr<SegmentSource> segment_;
  TransferBuffer buffer_;
  const size_t buffer_number_;
  WakeUp wake_up_;  // watches descriptors of sidecar_ and segment_
  std::vector<SharedMemory> memories_;
  bool closed_ = false;
  uint64_t last_id_ = 0;
  uint64_t last_message_ = 0;
  std::unordered_map<StoreRequestId, OpenRequest> requests_;
  std::array<Chunks, kUrgencyCount> waiting_;                       // not with the sidecar yet
  std::unordered_map<uint64_t, std::unique_ptr<Chunk>> in_flight_;  // by message
  size_t puts_in_flight_ = 0;
  TimePoint puts_refused_until_{};
  Duration puts_refused_for_{0};
  std::vector<StoreCompletion> ready_;
  bool is_announced_ = false;
  TimePoint armed_ = kNoDeadline;
  StoreStats counts_;
  std::vector<mooncake::Message> replies_;  // kept for its memory
};

}  // namespace tiercel
