// SPDX-License-Identifier: Apache-2.0
//
// Host tier → device.
#include <algorithm>

#include <fmt/core.h>

#include "cache/cache_impl.h"

namespace tiercel {

Result<uint32_t> Cache::Impl::load(RequestId id, std::span<const BlockKey> keys,
                                   uint32_t computed_blocks,
                                   std::span<const DeviceBlockId> device_blocks,
                                   TimePoint deadline) {
  if (device_blocks.size() % groups() != 0) {
    return Error(Code::kInvalid,
                 fmt::format("load of request {} offers {} device blocks; must be a multiple of "
                             "the {} groups",
                             id.value(), device_blocks.size(), groups()));
  }
  TIERCEL_TRY(check_computed("load", id, computed_blocks, keys.size()));
  TIERCEL_TRY_ASSIGN(Request* const found, request_for(id, keys));
  Request& request = *found;
  if (request.loading) {
    return Error(Code::kBusy, fmt::format("request {} is being loaded already", id.value()));
  }
  if (refuses_work()) {
    explain_unserved(request, computed_blocks, WhyReason::kNotCached);
    return 0;
  }
  const auto offered = static_cast<uint32_t>(device_blocks.size() / groups());
  view_.look(request.keys, computed_blocks, clock_.now());

  // A position for which the engine names no device block is one that it has itself.
  const auto loadable = [&](uint32_t group, uint32_t position) {
    if (position >= computed_blocks + offered) return false;
    if (device_blocks[group * offered + position - computed_blocks] == kNoDeviceBlock) return true;
    const NodeId node = view_.node(group, position);
    if (node == kNoNode) return false;
    return host_.has(node) || (disk_ != nullptr && disk_usable_ && disk_->has(node));
  };
  uint32_t bound = computed_blocks + offered;
  const size_t capacity = room(0);
  if (static_cast<size_t>(offered) * groups() > capacity) {
    bound = computed_blocks + static_cast<uint32_t>(capacity / groups());
  }
  const uint32_t cut = view_.usable_cut(bound, loadable);
  const bool short_of_room = cut == bound && bound < computed_blocks + offered;
  LoadChoice& choice = request.why.load_choice;
  uint32_t chosen = choose_cut(request, cut, false, deadline, Duration(0), choice);
  if (chosen < cut) chosen = view_.usable_cut(chosen, loadable);
  request.load_is_probe = chosen <= view_.first_uncomputed() && probes_device(cut);
  if (request.load_is_probe) {
    chosen =
        view_.usable_cut(std::min(cut, view_.first_uncomputed() + costs_.probe_blocks()), loadable);
  }
  const bool not_worth = chosen < cut;
  TimePoint until = patience(choice, deadline, Duration(0));
  if (request.load_is_probe) {
    // No longer than it takes to compute all of it.
    until = std::min(deadline, clock_.now() + choice.recompute_expected);
  }
  const uint32_t started = start_load(request, chosen, device_blocks, offered, until);
  if (started == 0 && chosen > view_.first_uncomputed()) {
    // All of it had to come by way of the host tier, and none of it could begin to.
    const bool is_full = request.load_code == Code::kNoSpace;
    request.why.start(computed_blocks);
    request.why.add(
        WhySpan{computed_blocks, static_cast<uint32_t>(request.keys.size()) - computed_blocks,
                is_full ? WhyReason::kNoHostSpace : WhyReason::kLoadFailed, request.load_code});
  } else {
    explain_unserved(request, computed_blocks + started,
                     not_worth       ? WhyReason::kNotWorthLoading
                     : short_of_room ? WhyReason::kLoadFailed
                                     : WhyReason::kNoDeviceBlock);
  }
  visit_path(request, computed_blocks + started, computed_blocks == 0);
  if (not_worth) probe_behind(request, computed_blocks, chosen);
  return started;
}

uint32_t Cache::Impl::start_load(Request& request, uint32_t cut,
                                 std::span<const DeviceBlockId> device_blocks, uint32_t offered,
                                 TimePoint deadline) {
  const uint32_t computed = view_.first_uncomputed();
  if (cut <= computed) return 0;
  const uint32_t count = cut - computed;
  request.load_first = computed;
  request.load_count = count;
  request.load_code = Code::kOk;
  request.load_unsettled = 1;  // the starting itself, so that no early answer ends the load
  request.loading = true;
  request.load_states.assign(static_cast<size_t>(count) * groups(), LoadState::kNotNeeded);
  request.load_deadline = deadline;
  request.load_start = clock_.now();
  ++request.load_serial;
  request.load_blocks.clear();

  Job* job = nullptr;
  for (uint32_t position = computed; position < cut; ++position) {
    for (uint32_t group = 0; group < groups(); ++group) {
      const DeviceBlockId device = device_blocks[group * offered + position - computed];
      if (!view_.needed(group, position, cut)) continue;
      LoadState& state = request.load_states[group * count + position - computed];
      if (device == kNoDeviceBlock) {
        state = LoadState::kOk;
        continue;
      }
      const NodeId node = view_.node(group, position);
      if (!host_.has(node)) {
        // After the blocks that are in the host tier: these are held then, and stay.
        state = LoadState::kFilling;
        request.load_blocks.resize(request.load_states.size(), kNoDeviceBlock);
        request.load_blocks[group * count + position - computed] = device;
        continue;
      }
      if (job == nullptr) {
        job = jobs_.start(OpKind::kLoad, deadline, request.index, request.generation);
        if (job == nullptr) {
          // No job to be had: what has been started stands, the rest is a shorter hit.
          state = LoadState::kFailed;
          request.load_code = Code::kBusy;
          continue;
        }
      }
      JobItem& item = add_item(*job, node, request.keys[position],
                               GroupId(static_cast<uint8_t>(group)), position);
      job->is_probe = request.load_is_probe;
      item.slot = host_.slot(node);
      item.has_slot = true;
      item.device_block = device;
      if (protections_.load_holds) hold_for(request, node, position);
      state = LoadState::kPending;
      ++request.load_unsettled;
      ++request.device_references;
      if (job->items.size() == config_.job_blocks_max) {
        submit(*job);
        job = nullptr;
      }
    }
  }
  if (job != nullptr) submit(*job);
  if (!request.load_blocks.empty()) {
    hold_path(cut);
    promote_for_load(request, cut);
    unhold_path(cut);
  }
  if (--request.load_unsettled > 0) return count;
  // Nothing had to be moved (the engine has every needed block), or nothing could be started.
  if (loaded_cut(request) == computed) {
    request.loading = false;
    return 0;
  }
  finish_load(request);
  return count;
}

void Cache::Impl::settle_load(Job& job, JobItem& item, Code code) {
  if (code == Code::kOk) {
    ++stats_.load_blocks;
  } else {
    ++stats_.load_failed;
    if (code == Code::kTimeout) ++stats_.load_timeout;
    if (code == Code::kCorrupt) {
      ++stats_.load_corrupt;
      drop_bad_copy(host_, item.node, item.slot);
    }
  }
  if (protections_.load_holds) unhold_node(item.node);
  Request* request = requests_.at(job.request, job.request_generation);
  if (request == nullptr || !request->loading) return;
  end_load_entry(*request, load_state(*request, item.group, item.position), code);
}

LoadState& Cache::Impl::load_state(Request& request, GroupId group, uint32_t position) {
  return request
      .load_states[size_t{group.value()} * request.load_count + position - request.load_first];
}

void Cache::Impl::end_load_entry(Request& request, LoadState& state, Code code) {
  state = code == Code::kOk ? LoadState::kOk : LoadState::kFailed;
  if (code != Code::kOk && request.load_code == Code::kOk) request.load_code = code;
  if (--request.load_unsettled == 0) finish_load(request);
}

uint32_t Cache::Impl::loaded_cut(const Request& request) const {
  // The deepest usable cut in what has really arrived. A cut above a failure may need blocks of a
  // window group that were not asked for, because only the deepest cut's window was; those are
  // missing.
  const uint32_t count = request.load_count;
  const auto states = [&](uint32_t group) {
    return request.load_states.data() + static_cast<size_t>(group) * count;
  };
  uint32_t cut = count;
  for (uint32_t group = 0; group < groups(); ++group) {
    if (view_.is_window(group)) continue;
    cut = static_cast<uint32_t>(
        std::find_if(states(group), states(group) + cut,
                     [](LoadState state) { return state != LoadState::kOk; }) -
        states(group));
  }
  const auto has_window = [&](uint32_t group) {
    const uint32_t end = request.load_first + cut;
    const uint32_t first = view_.first_needed(group, end, request.load_first);
    return std::all_of(states(group) + (first - request.load_first), states(group) + cut,
                       [](LoadState state) { return state == LoadState::kOk; });
  };
  for (uint32_t group = 0; cut > 0 && group < groups();) {
    if (!view_.is_window(group) || has_window(group)) {
      ++group;
      continue;
    }
    --cut;
    group = 0;
  }
  return request.load_first + cut;
}

void Cache::Impl::finish_load(Request& request) {
  request.loading = false;
  const uint32_t cut = loaded_cut(request);
  request.why.served_blocks = cut;
  request.why.load_choice.measured = request.why.load_choice.made;
  request.why.load_choice.load_measured = clock_.now() - request.load_start;
  const uint32_t end = request.load_first + request.load_count;
  if (cut < end) {
    request.why.add(WhySpan{cut, end - cut, WhyReason::kLoadFailed, request.load_code});
  }
  CacheEvent event;
  event.kind = EventKind::kLoadDone;
  event.code = request.load_code;
  event.request = request.id;
  event.generation = request.generation;
  event.blocks = cut;
  event.device_busy = request.device_references > 0 && protections_.device_release;
  if (event.device_busy) request.device_notice = true;
  emit(event);
}

}  // namespace tiercel
