// SPDX-License-Identifier: Apache-2.0
//
// Requests on their way in: the items of each are divided into messages, which wait by urgency.
#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "base/assert.h"
#include "store/mooncake/mooncake_store.h"
#include "store/store_items.h"

namespace tiercel {
namespace {

using mooncake::is_put;
using mooncake::Request;

// Requests in flight or not yet polled; more is kBusy.
constexpr size_t kRequestsMax = 4096;
// Of one message. Mooncake's leases run while a batch does, and the other threads are waiting.
constexpr uint64_t kMessageBytesMax = uint64_t{64} << 20;
// Puts are divided among the threads that may put, as far as parts of this size go: each object
// costs a put some work beside its bytes, and several threads do more of that than one. Gets of one
// batch would only hinder each other.
constexpr uint64_t kPutShareMin = uint64_t{2} << 20;
// Copies are made by the caller's thread, which has other things to do.
constexpr uint64_t kCopiedBytesMax = uint64_t{8} << 20;
// Scattered objects up to this size are copied together: each piece costs a transfer, some 80 µs
// over TCP, in which much more than this is copied.
constexpr uint64_t kCopyBelowBytes = uint64_t{128} << 10;

template <typename Spans>
std::vector<std::span<std::byte>> pieces_of(const Spans& spans) {
  std::vector<std::span<std::byte>> pieces;
  for (const auto& span : spans) {
    if (span.empty()) continue;
    // What is put is only read, here and in the sidecar.
    const std::span<std::byte> piece(const_cast<std::byte*>(span.data()), span.size());
    if (!pieces.empty() && pieces.back().data() + pieces.back().size() == piece.data()) {
      pieces.back() = {pieces.back().data(), pieces.back().size() + piece.size()};
    } else {
      pieces.push_back(piece);
    }
  }
  return pieces;
}

}  // namespace

Status MooncakeStore::accepts() const {
  if (closed_) return Error(Code::kUnavailable, "the Mooncake store is closed");
  const size_t count = requests_.size() + ready_.size();
  if (count < kRequestsMax) return {};
  return Error(Code::kBusy, std::to_string(count) +
                                " requests of the Mooncake store are in flight or not yet polled; "
                                "poll them first");
}

// The items of one request on their way into chunks.
struct MooncakeStore::Draft {
  StoreRequestId request;
  TimePoint deadline;
  std::unique_ptr<Chunk> chunk;  // that is being filled; null: none
  uint64_t bytes = 0;            // in it
  uint64_t put_share = 0;        // with which a message with puts is full
};

template <typename MakeItem>
Result<StoreRequestId> MooncakeStore::submit(size_t count, uint64_t StoreStats::*counter,
                                             TimePoint deadline, MakeItem make_item) {
  TIERCEL_TRY(accepts());
  if (counter != nullptr) counts_.*counter += count;
  const TimePoint now = clock_.now();
  const StoreRequestId id(++last_id_);
  OpenRequest& request = requests_[id];
  request.codes.assign(count, Code::kInvalid);
  request.open_items = count;
  if (count == 0) {
    requests_.erase(id);
    ready_.push_back({id, {}});
    progress(now);
    announce();
    return id;
  }
  std::optional<Code> end;
  if (has_passed(deadline, now)) end = Code::kTimeout;
  // Before the items are looked at: a pool that is away must cost nothing.
  if (!end && !sidecar_->start(now) && sidecar_->state() == Sidecar::State::kDown) {
    end = Code::kUnavailable;
  }
  Draft draft{id, deadline, nullptr};
  for (size_t i = 0; i < count; ++i) {
    const auto index = static_cast<uint32_t>(i);
    if (end) {
      end_item(id, index, *end);
      continue;
    }
    make_item(index, draft);
  }
  queue_draft(draft);
  progress(now);
  announce();
  return id;
}

Result<StoreRequestId> MooncakeStore::submit_exists(std::span<const ObjectKey> keys,
                                                    TimePoint deadline) {
  return submit(keys.size(), &StoreStats::exists, deadline, [&](uint32_t i, Draft& draft) {
    if (!is_well_formed(keys[i])) return end_item(draft.request, i, Code::kInvalid);
    add_to_draft(draft, Request::kExists, {keys[i], {}, i});
  });
}

Result<StoreRequestId> MooncakeStore::submit_remove(std::span<const ObjectKey> keys,
                                                    TimePoint deadline) {
  return submit(keys.size(), &StoreStats::removes, deadline, [&](uint32_t i, Draft& draft) {
    if (!is_well_formed(keys[i])) return end_item(draft.request, i, Code::kInvalid);
    add_to_draft(draft, Request::kRemove, {keys[i], {}, i});
  });
}

Result<StoreRequestId> MooncakeStore::submit_get(std::span<const StoreGetItem> items,
                                                 TimePoint deadline) {
  return submit(items.size(), &StoreStats::gets, deadline, [&](uint32_t i, Draft& draft) {
    if (!is_well_formed(items[i])) return end_item(draft.request, i, Code::kInvalid);
    add_to_draft(draft, Request::kGet, {items[i].key, pieces_of(items[i].spans), i});
  });
}

Result<StoreRequestId> MooncakeStore::submit_put(std::span<const StorePutItem> items,
                                                 TimePoint deadline) {
  const bool is_refused = clock_.now() < puts_refused_until_;
  uint64_t bytes = 0;
  for (const StorePutItem& item : items) bytes += item.total_bytes();
  const uint64_t share = std::max(bytes / (options_.threads - 1), kPutShareMin);
  return submit(items.size(), &StoreStats::puts, deadline, [&](uint32_t i, Draft& draft) {
    const StorePutItem& item = items[i];
    if (!is_well_formed(item)) return end_item(draft.request, i, Code::kInvalid);
    if (is_refused) return end_item(draft.request, i, Code::kNoSpace);
    draft.put_share = share;
    add_to_draft(draft, item.replace ? Request::kReplace : Request::kPut,
                 {item.key, pieces_of(item.spans), i});
  });
}

Result<StoreRequestId> MooncakeStore::submit_clear(std::string_view prefix, TimePoint deadline) {
  if (prefix.empty()) {
    return Error(Code::kInvalid,
                 "clear of a Mooncake store with an empty prefix; name at least one namespace");
  }
  return submit(1, nullptr, deadline, [&](uint32_t i, Draft& draft) {
    add_to_draft(draft, Request::kClear, {ObjectKey(), {}, i});
    draft.chunk->prefix = prefix;
  });
}

void MooncakeStore::add_to_draft(Draft& draft, Request kind, Item item) {
  const uint64_t bytes = item.bytes();
  bool is_copied = false;
  if (kind == Request::kGet || is_put(kind)) {
    const bool is_small_and_scattered = item.pieces.size() > 1 && bytes <= kCopyBelowBytes;
    is_copied = is_small_and_scattered || shared_memory_of(item) == nullptr;
    if (is_copied && TransferBuffer::aligned(bytes) > buffer_.bytes()) {
      return end_item(draft.request, item.index, Code::kNoSpace);
    }
  }
  // Several must fit into the buffer, or they would only follow each other.
  const uint64_t bytes_max =
      is_copied ? std::min<uint64_t>(kCopiedBytesMax, buffer_.bytes() / 4) : kMessageBytesMax;
  const bool is_full = is_put(kind) && draft.bytes >= draft.put_share;
  const bool joins = draft.chunk != nullptr && draft.chunk->kind == kind &&
                     draft.chunk->is_copied == is_copied &&
                     draft.chunk->items.size() < mooncake::kItemsMax && !is_full &&
                     draft.bytes + bytes <= bytes_max &&
                     (is_copied || draft.chunk->items.front().pieces.size() == item.pieces.size());
  if (!joins) {
    queue_draft(draft);
    draft.chunk = std::make_unique<Chunk>();
    draft.chunk->kind = kind;
    draft.chunk->request = draft.request;
    draft.chunk->deadline = draft.deadline;
    draft.chunk->is_copied = is_copied;
    draft.bytes = 0;
  }
  draft.bytes += bytes;
  if (is_copied) draft.chunk->buffer_bytes += TransferBuffer::aligned(bytes);
  draft.chunk->items.push_back(std::move(item));
}

void MooncakeStore::queue_draft(Draft& draft) {
  if (draft.chunk == nullptr) return;
  Chunks& queue = queue_of(draft.chunk->kind);
  queue.push_back(std::move(draft.chunk));
}

MooncakeStore::Chunks& MooncakeStore::queue_of(Request kind) {
  switch (kind) {
    case Request::kGet:
      return waiting_[kGets];
    case Request::kRemove:
    case Request::kClear:
      return waiting_[kRemovals];
    case Request::kPut:
    case Request::kReplace:
      return waiting_[kPuts];
    case Request::kExists:
    case Request::kMap:
    case Request::kSegment:
      break;
  }
  return waiting_[kQuestions];
}

const MooncakeStore::SharedMemory* MooncakeStore::shared_memory_of(const Item& item) const {
  const auto found =
      std::find_if(memories_.begin(), memories_.end(), [&](const SharedMemory& shared) {
        const std::byte* const first = shared.memory.data();
        const std::byte* const last = first + shared.memory.size();
        return std::all_of(item.pieces.begin(), item.pieces.end(), [&](const auto& piece) {
          return piece.data() >= first && piece.data() + piece.size() <= last;
        });
      });
  return found == memories_.end() ? nullptr : &*found;
}

}  // namespace tiercel
