// SPDX-License-Identifier: Apache-2.0
//
// Hand-over from a prefill to a decode instance, through a store: the one saves all that it has
// computed, the last partial block included, and says so when the store has it.
#include <algorithm>

#include "engine/resource_manager_impl.h"

namespace tiercel {

void ResourceManagerImpl::hand_over(Entry& entry) {
  if (!entry.is_private && entry.partial_key) {
    // Of what cannot be saved the decode instance computes anew.
    (void)prefix_.commit_partial(entry.id, *entry.partial_key);
  }
  take_from_running(entry);
  (void)prefix_.finish(entry.id);  // the saves go on
  if (entry.is_private) {
    report(entry, FinishReason::kHandedOver);
    return;
  }
  entry.state = RequestState::kHandingOver;
  entry.finished.ended = clock_.now();
  handing_over_.push_back(&entry);
}

void ResourceManagerImpl::poll_hand_overs() {
  if (handing_over_.empty()) return;
  // Nothing is queued or in flight any more: what is not there by now will not come.
  const bool is_settled = cache_.settled();
  for (size_t i = 0; i < handing_over_.size();) {
    Entry& entry = *handing_over_[i];
    const auto keys = entry.sequence->keys();
    const size_t wanted = keys.size() + (entry.partial_key ? 1 : 0);
    // From where it stood: with a store that hangs that is one look for each request and step.
    uint32_t& stored = entry.stored_blocks;
    if (stored < keys.size()) stored += cache_.stored_blocks(keys.subspan(stored));
    if (stored == keys.size() && stored < wanted) {
      stored += cache_.stored_blocks({&*entry.partial_key, 1});
    }
    const bool is_late = clock_.now() >= entry.finished.ended + config_.hand_over_deadline;
    if (stored < wanted && !is_settled && !is_late) {
      ++i;
      continue;
    }
    entry.finished.stored_tokens = std::min(uint64_t{stored} * block_tokens_, entry.prompt_tokens);
    handing_over_.erase(handing_over_.begin() + static_cast<ptrdiff_t>(i));
    report(entry, FinishReason::kHandedOver);
  }
}

}  // namespace tiercel
