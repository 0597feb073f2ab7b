// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_mooncake_lane.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/core.h>
#include <poll.h>

#include "base/poll_timeout.h"
#include "cli/bench_keys.h"
#include "store/registry.h"

namespace tiercel {
namespace {

constexpr uint32_t kOpsPerStep = 64;
constexpr uint32_t kTokens = 16;

}  // namespace

Result<std::unique_ptr<MooncakeLane>> MooncakeLane::create(const std::string& url,
                                                           const Namespace& name_space,
                                                           uint64_t payload_bytes, uint32_t blocks,
                                                           bool verify, const Clock& clock) {
  StoreRegistry registry;
  register_all_stores(registry);
  TIERCEL_TRY_ASSIGN(std::unique_ptr<Store> store, registry.open(url, {clock}));
  TIERCEL_TRY_ASSIGN(SlotGeometry geometry,
                     SlotGeometry::for_blocks({{payload_bytes}}, 2 * blocks, 1));
  std::unique_ptr<MooncakeLane> lane(
      new MooncakeLane(std::move(geometry), payload_bytes, blocks, clock));
  TIERCEL_TRY(lane->start(std::move(store), name_space, verify));
  return lane;
}

MooncakeLane::MooncakeLane(SlotGeometry geometry, uint64_t payload_bytes, uint32_t blocks,
                           const Clock& clock)
    : clock_(clock),
      geometry_(std::move(geometry)),
      payload_bytes_(payload_bytes),
      blocks_(blocks),
      keys_(bench_keys(blocks, payload_bytes)) {}

Status MooncakeLane::start(std::unique_ptr<Store> store, const Namespace& name_space, bool verify) {
  store_ = store.get();
  ArenaOptions arena;
  arena.prefault = true;
  TIERCEL_TRY_ASSIGN(device_, Arena::create(payload_bytes_ * blocks_, arena));
  arena.kind = ArenaKind::kMemfd;
  TIERCEL_TRY_ASSIGN(host_, Arena::create(geometry_.tier_bytes(0), arena));
  const std::span<std::byte> device = device_->memory().first(payload_bytes_ * blocks_);
  bench_fill(device, payload_bytes_, sizeof(uint64_t));
  TIERCEL_TRY_ASSIGN(ContiguousCopier copier,
                     ContiguousCopier::create({ContiguousGroupMemory{device, payload_bytes_}}));
  copier_.emplace(std::move(copier));
  RankWorkerOptions worker;
  worker.name_space = name_space;
  worker.verify = verify;
  TIERCEL_TRY_ASSIGN(
      worker_, RankWorker::create(worker, geometry_, host_->memory().first(geometry_.tier_bytes(0)),
                                  &*copier_, std::move(store), clock_, nullptr, host_->fd()));
  // Frames are made here, once.
  TIERCEL_TRY(run(OpKind::kSave, blocks_));
  return run(OpKind::kStoreExists, 1);
}

void MooncakeLane::forget_what_was_got() {
  for (uint32_t block = 0; block < blocks_; ++block) {
    const uint64_t offset = *geometry_.offset(SlotId(blocks_ + block), GroupId(0), 0);
    const std::span<std::byte> slot =
        host_->memory().subspan(offset, geometry_.stride_bytes(GroupId(0), 0));
    const std::span<std::byte> rest = slot.subspan(payload_bytes_);
    std::fill(rest.begin(), rest.end(), std::byte{0});
  }
}

Status MooncakeLane::run(OpKind kind, uint32_t count) {
  std::vector<BlockOp> ops(count);
  for (uint32_t i = 0; i < count; ++i) {
    BlockOp& op = ops[i];
    op.job = JobId(1);
    op.item = i;
    op.kind = kind;
    op.key = keys_[i];
    op.slot = SlotId(kind == OpKind::kStoreGet ? blocks_ + i : i);
    op.device_block = DeviceBlockId(i);
    op.token_count = kTokens;
  }
  worker_->submit(ops);
  std::array<Completion, kOpsPerStep> completions;
  Code failure = Code::kOk;
  for (uint32_t done = 0; done < count;) {
    const bool more = worker_->progress(kOpsPerStep);
    size_t taken = 0;
    while (const size_t some = worker_->take(completions)) {
      for (const Completion& one : std::span(completions).first(some)) {
        const bool is_answer = kind == OpKind::kStoreExists && one.code == Code::kNotFound;
        if (one.code != Code::kOk && !is_answer) failure = one.code;
      }
      taken += some;
    }
    done += static_cast<uint32_t>(taken);
    if (taken > 0 || more) continue;
    pollfd source{.fd = worker_->store_fd(), .events = POLLIN, .revents = 0};
    ::poll(&source, 1, poll_timeout_ms(worker_->next_due(), clock_));
  }
  if (failure == Code::kOk) return {};
  return Error(Code::kUnavailable,
               fmt::format("{} of {} blocks of {} bytes ended in '{}'; {}", to_string(kind), count,
                           payload_bytes_, to_string(failure), store_->state()));
}

}  // namespace tiercel
