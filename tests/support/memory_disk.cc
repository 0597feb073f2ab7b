// SPDX-License-Identifier: Apache-2.0
#include "support/memory_disk.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/assert.h"

namespace tiercel::testing {
namespace {

void overlay(std::vector<std::byte>& image, uint64_t offset, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  if (image.size() < offset + bytes.size()) image.resize(offset + bytes.size());
  std::memcpy(image.data() + offset, bytes.data(), bytes.size());
}

// The next sector border after `offset`.
uint64_t sector_end(uint64_t offset) {
  return (offset / MemoryDisk::kSectorBytes + 1) * MemoryDisk::kSectorBytes;
}

// A write that was under way: `arrived` is told the pieces of it that are on the disk.
template <typename Arrived>
void happen_in_part(DiskFile file, uint64_t offset, std::span<const std::byte> bytes,
                    Random& random, const Arrived& arrived) {
  enum Outcome : uint64_t { kNothing, kWhole, kLeadingPiece, kSomeSectors, kOutcomes };
  switch (random.below(kOutcomes)) {
    case kNothing:
      return;
    case kWhole:
      arrived(offset, bytes);
      return;
    case kLeadingPiece: {
      uint64_t length = random.between(0, bytes.size());
      if (file == DiskFile::kData) length -= length % MemoryDisk::kSectorBytes;
      arrived(offset, bytes.first(length));
      return;
    }
    default:
      for (uint64_t done = 0; done < bytes.size();) {
        const uint64_t length =
            std::min(sector_end(offset + done) - (offset + done), bytes.size() - done);
        if (random.chance(0.5)) arrived(offset + done, bytes.subspan(done, length));
        done += length;
      }
  }
}

bool aligned_for_direct_io(const DiskIoRequest& request) {
  const auto address = reinterpret_cast<uintptr_t>(request.memory.data());
  return (request.offset | request.memory.size() | address) % kDiskAlignmentBytes == 0;
}

}  // namespace

class MemoryDiskIo final : public DiskIo {
 public:
  MemoryDiskIo(MemoryDisk& disk, const MemoryDiskIoOptions& options)
      : disk_(&disk), queue_depth_(options.queue_depth) {
    if (options.order_seed) order_.emplace(*options.order_seed);
  }
  ~MemoryDiskIo() override {
    for (const Pending& pending : pending_) carry_out(pending);
    if (disk_ != nullptr) disk_->user_ = nullptr;
  }

  size_t capacity() const override { return queue_depth_ - pending_.size(); }

  void submit(std::span<const DiskIoRequest> requests) override {
    TIERCEL_ASSERT(requests.size() <= capacity(), "no more is submitted than there is room for");
    for (const DiskIoRequest& request : requests) {
      const uint64_t covers =
          disk_ == nullptr ? 0 : std::as_const(*disk_).file_of(request.file).writes;
      pending_.push_back({request, covers});
    }
  }

  size_t poll(std::span<DiskIoCompletion> out) override {
    size_t count = std::min(out.size(), pending_.size());
    if (order_ && count > 1) count = order_->between(1, count);
    for (size_t i = 0; i < count; ++i) {
      const size_t next = order_ ? order_->below(pending_.size()) : 0;
      const Pending pending = pending_[next];
      pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(next));
      out[i] = {.token = pending.request.token, .result = carry_out(pending)};
    }
    return count;
  }

  int completion_fd() const override { return -1; }
  std::string describe() const override { return "memory"; }

  // What is in flight is left to `disk`, which has died with it.
  std::deque<DiskIoRequest> cut_off() {
    disk_ = nullptr;
    std::deque<DiskIoRequest> requests;
    for (const Pending& pending : pending_) requests.push_back(pending.request);
    return requests;
  }

 private:
  struct Pending {
    DiskIoRequest request;
    uint64_t covers = 0;  // of a sync: so many writes had completed before it
  };

  int64_t carry_out(const Pending& pending) {
    if (disk_ == nullptr) return -EIO;
    const DiskIoRequest& request = pending.request;
    MemoryDisk::File& file = disk_->file_of(request.file);
    if (request.kind == DiskIoKind::kSync) {
      MemoryDisk::make_durable(file, pending.covers);
      return 0;
    }
    if (request.file == DiskFile::kData && !aligned_for_direct_io(request)) return -EINVAL;
    if (request.kind == DiskIoKind::kWrite) {
      disk_->write(request.file, request.offset, request.memory);
      return static_cast<int64_t>(request.memory.size());
    }
    if (request.offset >= file.seen.size()) return 0;
    const size_t length = std::min(request.memory.size(), file.seen.size() - request.offset);
    std::memcpy(request.memory.data(), file.seen.data() + request.offset, length);
    return static_cast<int64_t>(length);
  }

  MemoryDisk* disk_;  // nullptr: cut off
  const size_t queue_depth_;
  std::optional<Random> order_;
  std::deque<Pending> pending_;
};

MemoryDisk::MemoryDisk() = default;
MemoryDisk::~MemoryDisk() {
  TIERCEL_ASSERT(user_ == nullptr, "the disk outlives every DiskIo that it gave");
}

std::unique_ptr<DiskIo> MemoryDisk::open(const MemoryDiskIoOptions& options) {
  TIERCEL_ASSERT(user_ == nullptr, "a disk has one user at a time");
  auto io = std::make_unique<MemoryDiskIo>(*this, options);
  user_ = io.get();
  return io;
}

std::span<const std::byte> MemoryDisk::contents(DiskFile file) const { return file_of(file).seen; }
size_t MemoryDisk::unsynced_writes(DiskFile file) const { return file_of(file).unsynced.size(); }

void MemoryDisk::put(DiskFile file, uint64_t offset, std::span<const std::byte> bytes) {
  overlay(file_of(file).seen, offset, bytes);
  overlay(file_of(file).durable, offset, bytes);
}

void MemoryDisk::resize(DiskFile file, uint64_t bytes) {
  // What waits may lie beyond the new end, and would come back.
  make_durable(file_of(file), file_of(file).writes);
  file_of(file).seen.resize(bytes);
  file_of(file).durable.resize(bytes);
}

void MemoryDisk::write(DiskFile file_kind, uint64_t offset, std::span<const std::byte> bytes) {
  File& file = file_of(file_kind);
  overlay(file.seen, offset, bytes);
  file.unsynced.push_back({offset, {bytes.begin(), bytes.end()}});
  ++file.writes;
  if (file.unsynced.size() > kUnsyncedWritesMax) {
    make_durable(file, file.writes - kUnsyncedWritesMax);
  }
}

void MemoryDisk::make_durable(File& file, uint64_t writes) {
  while (!file.unsynced.empty() && file.writes - file.unsynced.size() < writes) {
    overlay(file.durable, file.unsynced.front().offset, file.unsynced.front().bytes);
    file.unsynced.pop_front();
  }
}

void MemoryDisk::cut_off_user(Random& random) {
  if (user_ == nullptr) return;
  for (const DiskIoRequest& request : std::exchange(user_, nullptr)->cut_off()) {
    if (request.kind != DiskIoKind::kWrite) continue;
    if (request.file == DiskFile::kData && !aligned_for_direct_io(request)) continue;
    happen_in_part(request.file, request.offset, request.memory, random,
                   [&](uint64_t offset, std::span<const std::byte> bytes) {
                     write(request.file, offset, bytes);
                   });
  }
}

void MemoryDisk::crash(Random& random) { cut_off_user(random); }

void MemoryDisk::power_cut(Random& random) {
  cut_off_user(random);
  // From nearly nothing to nearly everything, so that rare combinations come up.
  const double lost = random.real();
  for (const DiskFile kind : {DiskFile::kData, DiskFile::kMetadata}) {
    File& file = file_of(kind);
    for (const Write& unsynced : file.unsynced) {
      if (random.chance(lost)) continue;
      happen_in_part(kind, unsynced.offset, unsynced.bytes, random,
                     [&](uint64_t offset, std::span<const std::byte> bytes) {
                       overlay(file.durable, offset, bytes);
                     });
    }
    file.unsynced.clear();
    file.seen = file.durable;
  }
}

}  // namespace tiercel::testing
