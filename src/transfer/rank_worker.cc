// SPDX-License-Identifier: Apache-2.0
#include "transfer/rank_worker.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "transfer/disk_requests.h"
#include "transfer/fifo.h"
#include "transfer/op_queue.h"
#include "transfer/rank_worker_check.h"
#include "transfer/shared_stats.h"
#include "transfer/slot_io.h"
#include "transfer/store_requests.h"

namespace tiercel {
namespace {

// How soon a store or disk is asked again that has no other way to call us.
constexpr Duration kRetry = std::chrono::milliseconds(1);

// Of one call into the store, which completes as a whole.
constexpr uint64_t kStoreBatchBytes = uint64_t{64} << 20;

constexpr std::array kStoreKindsInOrder = {OpKind::kStoreExists, OpKind::kStoreGet,
                                           OpKind::kStorePut, OpKind::kStoreRemove};
constexpr std::array kDiskKindsInOrder = {OpKind::kDiskClear, OpKind::kDiskGet, OpKind::kDiskPut};

int64_t to_ns(TimePoint time) { return time.time_since_epoch().count(); }
TimePoint to_time(int64_t ns) { return TimePoint(Duration(ns)); }

// What the control plane is told, given what a store said: a store has eight statuses to choose
// from.
Code code_from_store(OpKind kind, Code code) {
  if (code > Code::kInvalid) return Code::kUnavailable;
  // The store holds an object of another length than ours under our key: found, and not what was
  // asked for.
  if (kind == OpKind::kStoreGet && code == Code::kInvalid) return Code::kCorrupt;
  return code;
}

}  // namespace

class RankWorker::Impl {
 public:
  Impl(const RankWorkerOptions& options, const SlotGeometry& geometry,
       std::span<std::byte> host_memory, DeviceCopier* copier, std::unique_ptr<Store> store,
       std::unique_ptr<RankDisk> disk, const Clock& clock)
      : options_(options),
        slots_(geometry, options.rank, options.slice, options.name_space, options.writer_epoch,
               host_memory),
        copier_(copier),
        store_(std::move(store)),
        disk_(std::move(disk)),
        clock_(clock) {
    note_health();
  }

  void submit(std::span<const BlockOp> ops) {
    in_flight_ += ops.size();
    for (const BlockOp& op : ops) {
      const Code code = check(op);
      // A put of before a clear must not be found after it.
      if (code == Code::kOk && op.kind == OpKind::kDiskClear) cancel(queue(OpKind::kDiskPut));
      if (code == Code::kOk) {
        queue(op.kind).push(op);
      } else {
        end(op, code);
      }
    }
  }

  bool progress(uint32_t ops_max) {
    const bool more = progress_once(ops_max);
    note_health();
    return more;
  }

  TimePoint next_due() const { return std::min(store_due(), disk_due()); }

  TimePoint store_due() const {
    TimePoint due = kNoDeadline;
    if (!requests_.empty() && store_fd() < 0) due = clock_.now() + kRetry;
    if (!store_ops_waiting()) return due;
    // With something in flight the store's descriptor tells when to try again, but not of
    // deadlines.
    if (requests_.empty()) return clock_.now() + kRetry;
    for (OpKind kind : kStoreKindsInOrder) due = std::min(due, to_time(queue(kind).earliest_ns()));
    return due;
  }

  TimePoint disk_due() const {
    if (!disk_.exists()) return kNoDeadline;
    TimePoint due = disk_.disk().next_due();
    const bool waits = disk_ops_waiting();
    // A busy disk tells by its descriptor when to try again, if it has one.
    if ((waits || disk_.in_flight() > 0) && (disk_.completion_fd() < 0 || disk_.in_flight() == 0)) {
      due = std::min(due, clock_.now() + kRetry);
    }
    if (!waits) return due;
    for (OpKind kind : kDiskKindsInOrder) due = std::min(due, to_time(queue(kind).earliest_ns()));
    return due;
  }

  size_t take(std::span<Completion> out) {
    const size_t count = completions_.take(out);
    in_flight_ -= count;
    return count;
  }

  Status close(TimePoint deadline) {
    closing_ = true;
    for (OpQueue& waiting : queues_) cancel(waiting);
    if (closed_) return {};
    // One that hangs does not keep the other open.
    const Status disk_closed = close_disk(deadline);
    TIERCEL_TRY(close_store(deadline));
    TIERCEL_TRY(disk_closed);
    closed_ = true;
    return {};
  }

  int store_fd() const { return store_ ? store_->completion_fd() : -1; }
  int disk_fd() const { return disk_.completion_fd(); }
  size_t in_flight() const { return in_flight_; }
  RankStats stats() const { return counters_.read(); }
  const StoreReason& store_reason() const { return store_reason_; }
  uint32_t rank() const { return options_.rank; }
  const SlotIo& slots() const { return slots_; }

 private:
  Status close_store(TimePoint deadline) {
    if (!store_) return {};
    Status status = store_->close(deadline);
    collect();
    if (!status) return status;
    // The store has let go of everything; whatever it forgot to complete is over as well.
    while (!requests_.empty()) end_request(requests_[0], {});
    return {};
  }

  Status close_disk(TimePoint deadline) {
    if (!disk_.exists()) return {};
    Status status = disk_.disk().close(deadline);
    collect_disk();
    return status;
  }

  bool progress_once(uint32_t ops_max) {
    bool done = collect();
    done |= collect_disk();
    done |= expire();
    const uint32_t loads = run(OpKind::kLoad, ops_max);
    done |= loads > 0;

    // Asking the store costs little, so gets need not wait for the last load; saves and puts, which
    // nobody waits for, do.
    store_refuses_ = false;
    disk_refuses_ = false;
    done |= start_disk(OpKind::kDiskClear);
    done |= start_disk(OpKind::kDiskGet);
    done |= start(OpKind::kStoreExists);
    done |= start(OpKind::kStoreGet);
    if (queue(OpKind::kLoad).empty()) {
      done |= run(OpKind::kSave, ops_max - loads) > 0;
      done |= start_disk(OpKind::kDiskPut);
      done |= start(OpKind::kStorePut);
      done |= start(OpKind::kStoreRemove);
    }
    if (disk_.exists()) disk_.disk().flush();
    if (done) return true;
    if (!queue(OpKind::kLoad).empty() || !queue(OpKind::kSave).empty()) return true;
    return (store_ops_waiting() && !store_refuses_) || (disk_ops_waiting() && !disk_refuses_);
  }

  void cancel(OpQueue& waiting) {
    for (size_t i = 0; i < waiting.size(); ++i) end(waiting[i], Code::kCancelled);
    waiting.pop(waiting.size());
  }

  OpQueue& queue(OpKind kind) { return queues_[static_cast<size_t>(kind)]; }
  const OpQueue& queue(OpKind kind) const { return queues_[static_cast<size_t>(kind)]; }

  void note_health() {
    if (store_) counters_.set_store(store_->health());
    if (!disk_.exists()) return;
    const RankDiskStats stats = disk_.disk().stats();
    counters_.set_disk(disk_.disk().health(), stats.read_bytes, stats.written_bytes, stats.syncs);
  }

  bool store_ops_waiting() const {
    return std::any_of(kStoreKindsInOrder.begin(), kStoreKindsInOrder.end(),
                       [this](OpKind kind) { return !queue(kind).empty(); });
  }

  bool disk_ops_waiting() const {
    return std::any_of(kDiskKindsInOrder.begin(), kDiskKindsInOrder.end(),
                       [this](OpKind kind) { return !queue(kind).empty(); });
  }

  // kOk if the op may wait in its queue; trusts no field.
  Code check(const BlockOp& op) const {
    if (static_cast<size_t>(op.kind) >= kOpKindCount) return Code::kInvalid;
    if (op.group.value() >= slots_.geometry().group_count()) return Code::kInvalid;
    if (op.reserved != decltype(op.reserved){}) return Code::kInvalid;
    if (!concerns(op, options_.rank)) return Code::kInvalid;
    if (op.replace > (op.kind == OpKind::kStorePut ? 1 : 0)) return Code::kInvalid;
    if (op.has_parent > (op.kind == OpKind::kDiskPut ? 1 : 0)) return Code::kInvalid;
    if (uses_slot(op.kind)) {
      if (op.token_count == 0) return Code::kInvalid;
      if (!slots_.exists(op.slot, op.group)) return Code::kInvalid;
    }
    if (uses_device(op.kind)) {
      if (copier_ == nullptr) return Code::kUnsupported;
      if (op.device_block.value() >= copier_->block_count(op.group)) return Code::kInvalid;
    } else if (uses_disk(op.kind) ? !disk_.exists() : !store_) {
      return Code::kUnavailable;
    }
    return closing_ ? Code::kUnavailable : Code::kOk;
  }

  void end(const BlockOp& op, Code code) {
    if (static_cast<size_t>(op.kind) < kOpKindCount) {
      const uint64_t bytes =
          code == Code::kOk && uses_slot(op.kind) ? slots_.payload_bytes(op.group) : 0;
      counters_.count_end(op.kind, code, bytes);
    }
    completions_.push({.job = op.job,
                       .item = op.item,
                       .rank = static_cast<uint16_t>(options_.rank),
                       .code = code});
  }

  bool expire() {
    const int64_t now_ns = to_ns(clock_.now());
    bool any = false;
    for (OpQueue& waiting : queues_) {
      any |= waiting.expire(now_ns, [this](const BlockOp& op) { end(op, Code::kTimeout); });
    }
    return any;
  }

  // Executes up to `ops_max` loads or saves; how many.
  uint32_t run(OpKind kind, uint32_t ops_max) {
    OpQueue& waiting = queue(kind);
    uint32_t count = 0;
    TimePoint now = clock_.now();
    while (count < ops_max && !waiting.empty()) {
      count += take_copy_batch(kind, ops_max - count, to_ns(now));
      if (copy_ops_.empty()) continue;
      std::array<Code, kCopyBatchMax> codes{};
      const std::span<Code> batch_codes = std::span(codes).first(copy_ops_.size());
      if (kind == OpKind::kSave) {
        slots_.save(copy_ops_, *copier_, batch_codes);
      } else {
        slots_.load(copy_ops_, *copier_, options_.verify, batch_codes);
      }
      const TimePoint begun = std::exchange(now, clock_.now());
      counters_.count_busy(kind, now - begun);
      for (size_t i = 0; i < copy_ops_.size(); ++i) end(copy_ops_[i], codes[i]);
    }
    return count;
  }

  // Takes up to `ops_max` operations from the queue: those too late end at once, the others become
  // copy_ops_, one call into the copier. How many were taken; at least one.
  uint32_t take_copy_batch(OpKind kind, uint32_t ops_max, int64_t now_ns) {
    OpQueue& waiting = queue(kind);
    copy_ops_.clear();
    uint32_t taken = 0;
    while (taken < ops_max && copy_ops_.size() < kCopyBatchMax && !waiting.empty()) {
      const BlockOp op = waiting[0];
      const bool late = op.deadline_ns != to_ns(kNoDeadline) && now_ns >= op.deadline_ns;
      if (!late && !may_join_batch(op)) break;
      waiting.pop(1);
      ++taken;
      if (late) {
        end(op, Code::kTimeout);
      } else {
        copy_ops_.push_back(op);
      }
    }
    return taken;
  }

  // A call into the copier is about one group, and writes no place twice.
  bool may_join_batch(const BlockOp& op) const {
    return std::none_of(copy_ops_.begin(), copy_ops_.end(), [&op](const BlockOp& other) {
      return other.group != op.group ||
             (op.kind == OpKind::kLoad ? other.device_block == op.device_block
                                       : other.slot == op.slot);
    });
  }

  // Hands the next batch of one kind to the store; true if anything moved.
  bool start(OpKind kind) {
    OpQueue& waiting = queue(kind);
    if (waiting.empty() || store_refuses_) return false;
    if (kind == OpKind::kStorePut && end_unproven_put()) return true;

    StoreRequest& request = requests_.draft();
    const int64_t deadline_ns = waiting[0].deadline_ns;
    uint64_t bytes = 0;
    while (request.ops.size() < options_.store_batch_max && request.ops.size() < waiting.size()) {
      const BlockOp& op = waiting[request.ops.size()];
      // One call has one deadline.
      if (op.deadline_ns != deadline_ns) break;
      if (kind == OpKind::kStorePut && !request.ops.empty() && !is_proven(op)) break;
      if (uses_slot(kind)) bytes += slots_.payload_bytes(op.group);
      if (bytes > kStoreBatchBytes && !request.ops.empty()) break;
      request.ops.push_back(op);
    }
    // A store may do its work before it returns.
    const TimePoint started = clock_.now();
    Result<StoreRequestId> id = call_store(kind, request.ops, to_time(deadline_ns));
    if (!id && id.code() == Code::kBusy) {
      store_refuses_ = true;
      return false;
    }
    waiting.pop(request.ops.size());
    if (!id) {
      const Code code = code_from_submission(id.code());
      for (const BlockOp& op : request.ops) end(op, code);
      note_end(kind, code, started);
      return true;
    }
    request.id = *id;
    request.kind = kind;
    request.started = started;
    requests_.commit();
    return true;
  }

  // Hands waiting operations of one kind to the disk; true if anything moved.
  bool start_disk(OpKind kind) {
    OpQueue& waiting = queue(kind);
    bool any = false;
    while (!waiting.empty() && !disk_refuses_) {
      const BlockOp op = waiting[0];
      // Puts, which nobody waits for, leave room for gets; they come last, and the others must wait
      // for the disk as if it were busy.
      if (kind == OpKind::kDiskPut && disk_.in_flight(kind) >= options_.disk_puts_max) {
        disk_refuses_ = true;
        break;
      }
      uint32_t promised = 0;
      // As for a store: a slot that does not hold what the control plane believes is never kept.
      const bool proven = kind != OpKind::kDiskPut || slots_.check(op, &promised) == Code::kOk;
      const Code code = proven ? disk_.start(op, disk_memory(op), clock_.now()) : Code::kCorrupt;
      if (code == Code::kBusy) {
        disk_refuses_ = true;
        break;
      }
      waiting.pop(1);
      any = true;
      if (code != Code::kOk) end(op, code);
    }
    return any;
  }

  std::span<std::byte> disk_memory(const BlockOp& op) const {
    return uses_slot(op.kind) ? slots_.whole(op) : std::span<std::byte>();
  }

  bool collect_disk() {
    return disk_.collect(clock_.now(), [this](const BlockOp& op, Code code, Duration busy) {
      counters_.count_busy(op.kind, busy);
      if (code == Code::kOk && op.kind == OpKind::kDiskGet && options_.verify) {
        code = slots_.verify(op);
      }
      end(op, code);
    });
  }

  static Code code_from_submission(Code code) {
    return code > Code::kInvalid ? Code::kUnavailable : code;
  }

  bool is_proven(const BlockOp& op) const {
    uint32_t checksum = 0;
    return slots_.check(op, &checksum) == Code::kOk;
  }

  // A slot that does not hold what the control plane believes is never published. True if the first
  // put was one.
  bool end_unproven_put() {
    OpQueue& waiting = queue(OpKind::kStorePut);
    if (is_proven(waiting[0])) return false;
    end(waiting[0], Code::kCorrupt);
    waiting.pop(1);
    return true;
  }

  Result<StoreRequestId> call_store(OpKind kind, std::span<const BlockOp> ops, TimePoint deadline) {
    switch (kind) {
      case OpKind::kStoreGet:
        get_items_.clear();
        for (const BlockOp& op : ops) {
          const SlotIo::Slot slot = slots_.slot_of(op);
          get_items_.push_back({slots_.object_key(op), {slot.object}});
        }
        return store_->submit_get(get_items_, deadline);
      case OpKind::kStorePut:
        put_items_.clear();
        for (const BlockOp& op : ops) {
          const SlotIo::Slot slot = slots_.slot_of(op);
          put_items_.push_back({slots_.object_key(op), {slot.object}, op.replace == 1});
        }
        return store_->submit_put(put_items_, deadline);
      case OpKind::kStoreExists:
      case OpKind::kStoreRemove:
        keys_.clear();
        for (const BlockOp& op : ops) keys_.push_back(slots_.object_key(op));
        return kind == OpKind::kStoreExists ? store_->submit_exists(keys_, deadline)
                                            : store_->submit_remove(keys_, deadline);
      default:
        break;
    }
    TIERCEL_ASSERT(false, "other operations do not concern the store");
    return Error(Code::kInternal, "other operations do not concern the store");
  }

  // Takes what the store has completed; true if there was anything of ours. Asks even if nothing is
  // in flight, so that a descriptor that became readable by mistake does not stay so.
  bool collect() {
    if (!store_) return false;
    store_completions_.clear();
    store_->poll(&store_completions_);
    bool any = false;
    for (const StoreCompletion& completion : store_completions_) {
      StoreRequest* request = requests_.find(completion.id);
      // An id that we did not send, or that has completed before: of no operation that waits.
      if (request == nullptr) continue;
      end_request(*request, completion.codes);
      any = true;
    }
    return any;
  }

  // Codes that the store has left out count as `unavailable`.
  void end_request(StoreRequest& request, std::span<const Code> codes) {
    const TimePoint now = clock_.now();
    counters_.count_busy(request.kind, now - request.started);
    Code failure = Code::kOk;
    for (size_t i = 0; i < request.ops.size(); ++i) {
      const BlockOp& op = request.ops[i];
      Code code = i < codes.size() ? code_from_store(request.kind, codes[i]) : Code::kUnavailable;
      if (code == Code::kOk && request.kind == OpKind::kStoreGet && options_.verify) {
        code = slots_.verify(op);
      }
      if (code != Code::kOk && code != Code::kNotFound) failure = code;
      end(op, code);
    }
    note_end(request.kind, failure, now);
    requests_.end(request);
  }

  void note_end(OpKind kind, Code failure, TimePoint now) {
    if (failure == Code::kOk) {
      store_reason_.note_success();
    } else if (!closing_) {
      store_reason_.note_failure(*store_, kind, failure, now);
    }
  }

  const RankWorkerOptions options_;
  const SlotIo slots_;
  DeviceCopier* const copier_;
  const std::unique_ptr<Store> store_;
  DiskRequests disk_;
  const Clock& clock_;

  std::array<OpQueue, kOpKindCount> queues_;
  StoreRequests requests_;
  Fifo<Completion> completions_;
  size_t in_flight_ = 0;        // submitted and not yet taken
  bool store_refuses_ = false;  // busy: not asked again within one progress()
  bool disk_refuses_ = false;   // the same, or it has as many puts as it is given
  bool closing_ = false;
  bool closed_ = false;
  SharedStats counters_;
  StoreReason store_reason_;

  // Kept to be used again.
  std::vector<BlockOp> copy_ops_;
  std::vector<StoreGetItem> get_items_;
  std::vector<StorePutItem> put_items_;
  std::vector<ObjectKey> keys_;
  std::vector<StoreCompletion> store_completions_;
};

Result<std::unique_ptr<RankWorker>> RankWorker::create(
    const RankWorkerOptions& options, const SlotGeometry& geometry,
    std::span<std::byte> host_memory, DeviceCopier* copier, std::unique_ptr<Store> store,
    const Clock& clock, std::unique_ptr<RankDisk> disk, int host_memfd) {
  TIERCEL_TRY(check_rank_worker(options, geometry, host_memory.size(), copier));
  if (store) {
    TIERCEL_TRY(host_memfd < 0 ? store->register_memory(host_memory)
                               : store->register_shared_memory(host_memory, host_memfd));
  }
  return std::unique_ptr<RankWorker>(new RankWorker(std::make_unique<Impl>(
      options, geometry, host_memory, copier, std::move(store), std::move(disk), clock)));
}

RankWorker::RankWorker(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RankWorker::~RankWorker() = default;

void RankWorker::submit(std::span<const BlockOp> ops) { impl_->submit(ops); }
bool RankWorker::progress(uint32_t ops_max) { return impl_->progress(ops_max); }
TimePoint RankWorker::next_due() const { return impl_->next_due(); }
size_t RankWorker::take(std::span<Completion> out) { return impl_->take(out); }
int RankWorker::store_fd() const { return impl_->store_fd(); }
int RankWorker::disk_fd() const { return impl_->disk_fd(); }
size_t RankWorker::ops_in_flight() const { return impl_->in_flight(); }
Status RankWorker::close(TimePoint deadline) { return impl_->close(deadline); }
uint32_t RankWorker::rank() const { return impl_->rank(); }
const SlotGeometry& RankWorker::geometry() const { return impl_->slots().geometry(); }
std::span<std::byte> RankWorker::host_memory() const { return impl_->slots().memory(); }
RankStats RankWorker::stats() const { return impl_->stats(); }
const StoreReason& RankWorker::store_reason() const { return impl_->store_reason(); }

}  // namespace tiercel
