// SPDX-License-Identifier: Apache-2.0
#include "store/mooncake/mooncake_store.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <iterator>
#include <utility>

#include <poll.h>

#include "base/assert.h"
#include "base/quantity.h"
#include "store/mooncake/segment_peer.h"
#include "store/mooncake/segment_process.h"
#include "store/registry.h"
#include "store/store_items.h"

namespace tiercel {
namespace {

using mooncake::is_put;
using mooncake::Message;
using mooncake::Piece;
using mooncake::Request;

// How long close() lets the sidecar end what it has begun: a put that dies leaves its key blocked.
constexpr Duration kCloseGrace = std::chrono::seconds(2);
// And how long the pool may take to let go of the segment.
constexpr Duration kSegmentCloseGrace = std::chrono::seconds(5);
// A full pool is not asked again at once: that only keeps it from evicting.
constexpr Duration kRefuseFirst = std::chrono::milliseconds(20);
constexpr Duration kRefuseMax = std::chrono::seconds(1);

bool is_failure(Code code) { return code != Code::kOk && code != Code::kNotFound; }

}  // namespace

uint64_t MooncakeStore::Item::bytes() const {
  uint64_t sum = 0;
  for (const auto& piece : pieces) sum += piece.size();
  return sum;
}

bool MooncakeStore::Chunk::kind_moves_bytes() const {
  return kind == Request::kGet || is_put(kind);
}

Result<std::unique_ptr<MooncakeStore>> MooncakeStore::create(const MooncakeOptions& options,
                                                             const Clock& clock) {
  TIERCEL_TRY_ASSIGN(std::unique_ptr<Sidecar> sidecar, Sidecar::create(options));
  TIERCEL_TRY_ASSIGN(TransferBuffer buffer, TransferBuffer::create(options.buffer_bytes));
  // Its pages are provided when they are used: where memory is shared that is never.
  TIERCEL_TRY_ASSIGN(const size_t number,
                     sidecar->add_memory(buffer.fd(), buffer.bytes(), /*populate=*/false));
  TIERCEL_TRY_ASSIGN(WakeUp wake_up, WakeUp::create(sidecar->fd()));
  std::unique_ptr<SegmentSource> segment;
  if (options.segment_bytes > 0) {
    TIERCEL_TRY_ASSIGN(segment, SegmentProcess::create(options));
  } else if (!options.segment_socket.empty()) {
    TIERCEL_TRY_ASSIGN(segment, SegmentPeer::create(options.segment_socket));
  }
  if (segment != nullptr) {
    for (const int fd : segment->fds()) TIERCEL_TRY(wake_up.watch(fd));
  }
  std::unique_ptr<MooncakeStore> store(new MooncakeStore(options, clock, std::move(sidecar),
                                                         std::move(segment), std::move(buffer),
                                                         number, std::move(wake_up)));
  if (store->segment_ != nullptr) store->counts_.given_bytes = store->segment_->given_bytes();
  // The pool shall have the memory whether or not we ask it for anything: the first poll() starts
  // it. Not here, where stores are opened just to see whether their URL is right.
  store->arm_timer(clock.now());
  return store;
}

MooncakeStore::MooncakeStore(const MooncakeOptions& options, const Clock& clock,
                             std::unique_ptr<Sidecar> sidecar,
                             std::unique_ptr<SegmentSource> segment, TransferBuffer buffer,
                             size_t buffer_number, WakeUp wake_up)
    : options_(options),
      clock_(clock),
      sidecar_(std::move(sidecar)),
      segment_(std::move(segment)),
      buffer_(std::move(buffer)),
      buffer_number_(buffer_number),
      wake_up_(std::move(wake_up)) {}

Status MooncakeStore::register_shared_memory(std::span<std::byte> memory, int memfd) {
  if (closed_) return Error(Code::kUnavailable, "the Mooncake store is closed");
  TIERCEL_TRY_ASSIGN(const size_t number,
                     sidecar_->add_memory(memfd, memory.size(), options_.populate));
  memories_.push_back({memory, number});
  // Now, so that it is there when the first request is. If it cannot be, that request starts it.
  sidecar_->start(clock_.now());
  return {};
}

size_t MooncakeStore::poll(std::vector<StoreCompletion>* completions) {
  progress(clock_.now());
  const size_t count = ready_.size();
  std::move(ready_.begin(), ready_.end(), std::back_inserter(*completions));
  ready_.clear();
  if (std::exchange(is_announced_, false)) wake_up_.lower();
  return count;
}

void MooncakeStore::progress(TimePoint now) {
  watch_segment(now);
  take_replies(now);
  expire(now);
  dispatch(now);
  arm_timer(now);
}

// Where somebody else than poll() has found something that poll() will return.
void MooncakeStore::announce() {
  if (!ready_.empty() && !std::exchange(is_announced_, true)) wake_up_.raise();
}

void MooncakeStore::watch_segment(TimePoint now) {
  if (segment_ == nullptr || closed_ || !segment_->poll(now)) return;
  // Without a descriptor for it everything goes by the transport.
  static_cast<void>(
      sidecar_->place_segment(segment_->memfd(), segment_->bytes(), segment_->place()).has_value());
}

void MooncakeStore::take_replies(TimePoint now) {
  replies_.clear();
  const bool has_ended = sidecar_->poll(now, &replies_);
  for (const Message& reply : replies_) {
    const auto entry = in_flight_.find(reply.id);
    if (entry == in_flight_.end() || reply.codes.size() != entry->second->items.size()) {
      sidecar_->kill("the sidecar has answered what it was not asked");
      continue;
    }
    finish(*entry->second, reply, now);
    if (is_put(entry->second->kind)) --puts_in_flight_;
    in_flight_.erase(entry);
  }
  if (has_ended) end_all(Code::kUnavailable, now);
}

void MooncakeStore::finish(Chunk& chunk, const Message& reply, TimePoint now) {
  counts_.service_time += Duration(static_cast<Duration::rep>(reply.busy_ns));
  uint64_t offset = chunk.buffer_offset;
  size_t full = 0;
  for (size_t i = 0; i < chunk.items.size(); ++i) {
    const Item& item = chunk.items[i];
    const Code code = mooncake::code_of(chunk.kind, reply.codes[i], item.bytes());
    if (chunk.kind == Request::kGet && code == Code::kOk && !chunk.has_ended) {
      if (chunk.is_copied) copy_out(chunk, i, offset);
      ++counts_.get_hits;
      if (mooncake::is_read_here(reply.codes[i])) ++counts_.local_hits;
    }
    offset += TransferBuffer::aligned(item.bytes());
    if (code == Code::kNoSpace) ++full;
    if (!chunk.has_ended) end_item(chunk.request, item.index, code);
  }
  give_back_buffer(chunk);
  if (!is_put(chunk.kind)) return;
  // One that is alone may just be larger than any gap.
  if (full == chunk.items.size() && full > 1) {
    puts_refused_for_ = std::clamp(2 * puts_refused_for_, kRefuseFirst, kRefuseMax);
    puts_refused_until_ = now + puts_refused_for_;
  } else if (full == 0) {
    puts_refused_for_ = Duration(0);
  }
}

// The sidecar has ended, and with it all that it had; what it did not have yet would wait for its
// back-off.
void MooncakeStore::end_all(Code code, TimePoint now) {
  for (auto& [message, chunk] : in_flight_) {
    end_chunk(*chunk, has_passed(chunk->deadline, now) ? Code::kTimeout : code);
    give_back_buffer(*chunk);
  }
  in_flight_.clear();
  puts_in_flight_ = 0;
  for (Chunks& queue : waiting_) {
    for (const auto& chunk : queue) end_chunk(*chunk, code);
    queue.clear();
  }
}

void MooncakeStore::end_chunk(Chunk& chunk, Code code) {
  if (std::exchange(chunk.has_ended, true)) return;
  for (const Item& item : chunk.items) end_item(chunk.request, item.index, code);
}

void MooncakeStore::end_item(StoreRequestId id, uint32_t index, Code code) {
  const auto entry = requests_.find(id);
  TIERCEL_ASSERT(entry != requests_.end(), "a request ends with its last item");
  OpenRequest& request = entry->second;
  request.codes[index] = code;
  if (is_failure(code)) ++counts_.failures;
  if (--request.open_items > 0) return;
  ready_.push_back({id, std::move(request.codes)});
  requests_.erase(entry);
}

void MooncakeStore::give_back_buffer(Chunk& chunk) {
  if (chunk.buffer_bytes > 0) buffer_.give_back(chunk.buffer_offset, chunk.buffer_bytes);
  chunk.buffer_bytes = 0;
}

TimePoint MooncakeStore::kill_time(const Chunk& chunk) const {
  const TimePoint due = std::min(chunk.deadline, chunk.sent + options_.stuck_after);
  return std::max(due, chunk.sent) + options_.stuck_after;
}

void MooncakeStore::expire(TimePoint now) {
  for (Chunks& queue : waiting_) {
    std::erase_if(queue, [&](const std::unique_ptr<Chunk>& chunk) {
      if (!has_passed(chunk->deadline, now)) return false;
      end_chunk(*chunk, Code::kTimeout);
      return true;
    });
  }
  for (auto& [message, chunk] : in_flight_) {
    if (has_passed(chunk->deadline, now) && !chunk->is_in_place()) {
      end_chunk(*chunk, Code::kTimeout);
    }
    if (now >= kill_time(*chunk)) {
      sidecar_->kill("Mooncake has not answered for " + format_duration(now - chunk->sent) +
                     ", the sidecar was killed");
    }
  }
}

void MooncakeStore::dispatch(TimePoint now) {
  if (sidecar_->state() != Sidecar::State::kReady) return;
  for (size_t urgency = 0; urgency < waiting_.size(); ++urgency) {
    // One thread stays free for what somebody waits for.
    dispatch_from(waiting_[urgency], urgency == kPuts ? options_.threads - 1 : options_.threads,
                  now);
  }
}

void MooncakeStore::dispatch_from(Chunks& queue, size_t in_flight_max, TimePoint now) {
  while (!queue.empty() && in_flight_.size() < in_flight_max) {
    if (!dispatch_one(queue.front(), now)) return;
    queue.pop_front();
  }
}

bool MooncakeStore::dispatch_one(std::unique_ptr<Chunk>& chunk, TimePoint now) {
  if (chunk->buffer_bytes > 0) {
    const std::optional<size_t> offset = buffer_.take(chunk->buffer_bytes);
    if (!offset) return false;
    chunk->buffer_offset = *offset;
    if (is_put(chunk->kind)) copy_in(*chunk);
  }
  const uint64_t id = ++last_message_;
  if (!sidecar_->send(encode(id, *chunk))) {
    if (chunk->buffer_bytes > 0) buffer_.give_back(chunk->buffer_offset, chunk->buffer_bytes);
    return false;
  }
  chunk->sent = now;
  ++counts_.messages;
  if (is_put(chunk->kind)) ++puts_in_flight_;
  in_flight_.emplace(id, std::move(chunk));
  return true;
}

void MooncakeStore::copy_in(Chunk& chunk) {
  size_t offset = chunk.buffer_offset;
  for (const Item& item : chunk.items) {
    size_t place = offset;
    for (const auto& piece : item.pieces) {
      std::memcpy(buffer_.range(place, piece.size()).data(), piece.data(), piece.size());
      place += piece.size();
    }
    offset += TransferBuffer::aligned(item.bytes());
  }
}

void MooncakeStore::copy_out(const Chunk& chunk, size_t item, uint64_t offset) {
  for (const auto& piece : chunk.items[item].pieces) {
    std::memcpy(piece.data(), buffer_.range(offset, piece.size()).data(), piece.size());
    offset += piece.size();
  }
}

std::vector<std::byte> MooncakeStore::encode(uint64_t id, const Chunk& chunk) const {
  if (chunk.kind == Request::kClear) return mooncake::encode_clear(id, chunk.prefix);
  std::vector<ObjectKey> keys;
  keys.reserve(chunk.items.size());
  for (const Item& item : chunk.items) keys.push_back(item.key);
  if (!chunk.kind_moves_bytes()) return mooncake::encode_keys(chunk.kind, id, keys);
  std::vector<Piece> pieces;
  uint64_t address = chunk.is_copied ? sidecar_->address(buffer_number_) + chunk.buffer_offset : 0;
  for (const Item& item : chunk.items) {
    if (chunk.is_copied) {
      pieces.push_back({address, item.bytes()});
      address += TransferBuffer::aligned(item.bytes());
      continue;
    }
    const SharedMemory& shared = *shared_memory_of(item);
    for (const auto& piece : item.pieces) {
      const auto offset = static_cast<uint64_t>(piece.data() - shared.memory.data());
      pieces.push_back({sidecar_->address(shared.number) + offset, piece.size()});
    }
  }
  return mooncake::encode_transfer(chunk.kind, id, keys, pieces);
}

void MooncakeStore::arm_timer(TimePoint now) {
  TimePoint next = sidecar_->next_due();
  if (segment_ != nullptr && !closed_) next = std::min(next, segment_->next_due());
  for (const Chunks& queue : waiting_) {
    for (const auto& chunk : queue) next = std::min(next, chunk->deadline);
  }
  for (const auto& [message, chunk] : in_flight_) {
    const bool waits_for_deadline = !chunk->has_ended && !chunk->is_in_place();
    if (waits_for_deadline) next = std::min(next, chunk->deadline);
    // Once it is killed there is nothing more to be done than to wait.
    if (sidecar_->state() == Sidecar::State::kReady) next = std::min(next, kill_time(*chunk));
  }
  // A timer that comes too early costs one poll; one that is set at each submission costs more.
  if (next >= armed_ && armed_ > now) return;
  if (next == armed_) return;
  if (next == kNoDeadline) {
    wake_up_.clear_timer();
  } else {
    wake_up_.set_timer(next - now);
  }
  armed_ = next;
}

std::string MooncakeStore::state() const {
  if (closed_) return "closed";
  switch (sidecar_->state()) {
    case Sidecar::State::kReady:
      break;
    case Sidecar::State::kStarting: {
      const std::string stage = "the sidecar starts: " + sidecar_->stage();
      // Why the last one ended tells more than how far this one has come.
      return sidecar_->problem().empty() ? stage : sidecar_->problem() + "; " + stage;
    }
    case Sidecar::State::kEnding:
      return sidecar_->problem().empty() ? "the sidecar ends" : sidecar_->problem();
    case Sidecar::State::kDown:
      if (!sidecar_->problem().empty()) return sidecar_->problem();
      break;
  }
  const std::string problem = segment_ == nullptr ? "" : segment_->problem();
  if (!problem.empty()) return problem;
  return sidecar_->note().empty() ? "ok" : "ok, but " + sidecar_->note();
}

Status MooncakeStore::close(TimePoint deadline) {
  closed_ = true;
  for (Chunks& queue : waiting_) {
    for (const auto& chunk : queue) end_chunk(*chunk, Code::kUnavailable);
    queue.clear();
  }
  const auto left = [&] {
    return deadline == kNoDeadline ? Duration::max()
                                   : std::max(deadline - clock_.now(), Duration(0));
  };
  // The segment last: what is being put may be on its way there.
  Status closed = close_sidecar(left());
  if (segment_ != nullptr) {
    const Status ended = segment_->close(clock_, std::min(left(), kSegmentCloseGrace));
    if (closed) closed = ended;
  }
  announce();
  arm_timer(clock_.now());
  return closed;
}

Status MooncakeStore::close_sidecar(Duration allowed) {
  // In real time, in which the sidecar lives.
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto begun = now();
  while (sidecar_->state() != Sidecar::State::kDown) {
    const Duration gone = now() - begun;
    const bool is_done = in_flight_.empty() || sidecar_->state() != Sidecar::State::kReady;
    if (is_done || gone >= std::min(kCloseGrace, allowed / 2)) sidecar_->kill("closed");
    pollfd source{.fd = sidecar_->fd(), .events = POLLIN, .revents = 0};
    constexpr int kLookMs = 20;
    ::poll(&source, 1, kLookMs);
    take_replies(clock_.now());
    if (sidecar_->state() == Sidecar::State::kDown || gone < allowed) continue;
    return Error(Code::kTimeout,
                 "the sidecar of the Mooncake store is killed and has not ended "
                 "within " +
                     format_duration(allowed));
  }
  return {};
}

void register_mooncake_store(StoreRegistry& registry) {
  StoreInfo info;
  info.scheme = "mooncake";
  info.summary = "A Mooncake Store pool, whose master stands in the path: mooncake://host:port";
  info.options = mooncake_option_table();
  info.open = [](const StoreUrl& url,
                 const StoreContext& context) -> Result<std::unique_ptr<Store>> {
    TIERCEL_TRY_ASSIGN(const MooncakeOptions options, read_mooncake_options(url));
    TIERCEL_TRY_ASSIGN(std::unique_ptr<MooncakeStore> store,
                       MooncakeStore::create(options, context.clock));
    return std::unique_ptr<Store>(std::move(store));
  };
  info.conformance_url = "mooncake://{service}";
  info.counts_held = false;
  info.replaces_whole = false;
  registry.add(std::move(info));
}

}  // namespace tiercel
