// SPDX-License-Identifier: Apache-2.0
#include "engine/resource_manager.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>

#include "base/assert.h"
#include "engine/resource_manager_impl.h"

namespace tiercel {
namespace {

// Kept with the memory of their keys, 32 bytes a block.
constexpr size_t kSpareSequencesMax = 16;

}  // namespace

Result<std::unique_ptr<ResourceManager>> ResourceManager::create(
    const ResourceManagerConfig& config, Cache& cache, PrefixCache& prefix, const Clock& clock) {
  return EngineFactory::create_resource_manager(EngineProtections{}, config, cache, prefix, clock);
}

Result<std::unique_ptr<ResourceManager>> EngineFactory::create_resource_manager(
    const EngineProtections& protections, const ResourceManagerConfig& config, Cache& cache,
    PrefixCache& prefix, const Clock& clock) {
  TIERCEL_TRY(config.validate());
  if (config.role != EngineRole::kMixed && !cache.config().with_store) {
    return Error(Code::kInvalid,
                 fmt::format("role is {}, and the cache has no store; allowed: mixed",
                             to_string(config.role)));
  }
  TIERCEL_TRY_ASSIGN(const Namespace name_space, make_namespace(cache.config().spec));
  return std::unique_ptr<ResourceManager>(
      std::make_unique<ResourceManagerImpl>(protections, config, name_space, cache, prefix, clock));
}

ResourceManagerImpl::ResourceManagerImpl(const EngineProtections& protections,
                                         const ResourceManagerConfig& config,
                                         const Namespace& name_space, Cache& cache,
                                         PrefixCache& prefix, const Clock& clock)
    : protections_(protections),
      config_(config),
      block_tokens_(cache.config().spec.block_tokens),
      with_store_(cache.config().with_store),
      namespace_(name_space),
      cache_(cache),
      prefix_(prefix),
      clock_(clock),
      ahead_(config.step_tokens_max, config.prefill_chunk_tokens_max) {
  running_.reserve(config.running_max);
  scheduled_.reserve(config.running_max);
}

Status ResourceManagerImpl::check_request(const EngineRequest& request) const {
  const auto refuse = [&](std::string_view what) {
    return Error(Code::kInvalid, fmt::format("request {} {}", request.id.value(), what));
  };
  if (request.prompt.empty()) return refuse("has an empty prompt; allowed: at least one token");
  if (request.output_tokens_max <= request.outputs.size()) {
    return refuse(
        fmt::format("may have {} output tokens and has {}; allowed: at least one more than it has",
                    request.output_tokens_max, request.outputs.size()));
  }
  const uint64_t tokens = request.prompt.size() + request.outputs.size();
  if (tokens >= config_.context_tokens_max) {
    return refuse(
        fmt::format("has {} tokens; allowed: 1 to {}, so that one more fits into the context "
                    "(context_tokens_max is {})",
                    tokens, config_.context_tokens_max - 1, config_.context_tokens_max));
  }
  const uint64_t pool_tokens = uint64_t{prefix_.pool_blocks()} * block_tokens_;
  if (tokens > pool_tokens) {
    return refuse(fmt::format("has {} tokens; allowed: 1 to {}, the tokens of the device pool",
                              tokens, pool_tokens));
  }
  for (const SequenceItem& item : request.items) {
    if (item.end <= request.prompt.size()) continue;
    return refuse(fmt::format("has an item that ends at token {}; allowed: 1 to {}, the prompt",
                              item.end, request.prompt.size()));
  }
  if (entries_.contains(request.id)) {
    return refuse("lives already; allowed: an id of which no request lives");
  }
  return {};
}

Status ResourceManagerImpl::add(EngineRequest request) {
  TIERCEL_TRY(check_request(request));
  if (waiting_.size() + prefetching_ >= config_.waiting_max) {
    return Error(Code::kBusy, fmt::format("request {} is one too many: waiting_max is {}",
                                          request.id.value(), config_.waiting_max));
  }
  auto entry = std::make_unique<Entry>();
  entry->id = request.id;
  entry->priority = request.priority;
  entry->arrival = ++last_arrival_;
  entry->scope = std::move(request.scope);
  entry->items = std::move(request.items);
  entry->tokens = std::move(request.prompt);
  entry->prompt_tokens = entry->tokens.size();
  entry->tokens.insert(entry->tokens.end(), request.outputs.begin(), request.outputs.end());
  entry->given_tokens = entry->tokens.size();
  // The newest token has no KV, and needs none if nothing follows it.
  const uint64_t room = std::min<uint64_t>(config_.context_tokens_max,
                                           uint64_t{prefix_.pool_blocks()} * block_tokens_ + 1);
  entry->tokens_max = entry->prompt_tokens + request.output_tokens_max;
  if (entry->tokens_max > room) {
    entry->tokens_max = room;
    entry->at_tokens_max = FinishReason::kContextLimit;
  }
  TIERCEL_TRY(make_sequence(*entry));
  entry->finished.id = request.id;
  entry->finished.prompt_tokens = entry->prompt_tokens;
  entry->finished.outputs = std::move(request.outputs);
  entry->finished.arrived = clock_.now();
  ++stats_.added;
  waiting_.insert(entry.get());
  entries_.emplace(entry->id, std::move(entry));
  return {};
}

Status ResourceManagerImpl::make_sequence(Entry& entry) {
  const RootKey root = make_root(namespace_, entry.scope);
  if (spare_sequences_.empty()) {
    entry.sequence.emplace(root, block_tokens_);
  } else {
    entry.sequence.emplace(std::move(spare_sequences_.back()));
    spare_sequences_.pop_back();
    entry.sequence->restart(root);
  }
  for (const SequenceItem& item : entry.items) TIERCEL_TRY(entry.sequence->add_item(item));
  const auto tokens = std::span<const TokenId>(entry.tokens);
  entry.sequence->append(tokens.first(entry.prompt_tokens));
  if (config_.role != EngineRole::kMixed) entry.partial_key = entry.sequence->partial_key();
  if (caches_outputs()) entry.sequence->append(tokens.subspan(entry.prompt_tokens));
  return {};
}

std::span<const BlockKey> ResourceManagerImpl::shared_keys(const Entry& entry) const {
  if (entry.is_private) return {};
  const auto keys = entry.sequence->keys();
  return keys.first(std::min<size_t>(keys.size(), entry.device_blocks));
}

void ResourceManagerImpl::share(Entry& entry) {
  if (entry.is_private) return;
  uint64_t tokens = entry.computed_tokens;
  if (!protections_.computed_only) tokens += entry.batch_tokens;
  if (!protections_.newest_token) tokens = entry.tokens.size();
  const auto computed =
      static_cast<uint32_t>(std::min<uint64_t>(tokens / block_tokens_, entry.device_blocks));
  if (computed <= entry.shared_blocks) return;
  entry.shared_blocks = computed;
  // Neither can fail: it has these blocks, and nothing is late.
  const auto extended = prefix_.extend(entry.id, shared_keys(entry), entry.device_blocks);
  TIERCEL_ASSERT(extended, "a request names keys for the blocks that it has");
  (void)prefix_.commit(entry.id, tokens);
  tell_computing(entry);
}

Status ResourceManagerImpl::abort(RequestId request) {
  const auto found = entries_.find(request);
  if (found == entries_.end()) {
    return Error(Code::kNotFound, fmt::format("request {} does not live", request.value()));
  }
  Entry& entry = *found->second;
  ++stats_.aborted;
  // The id may be another request's by the time of the next step.
  std::erase(preempted_next_, request);
  switch (entry.state) {
    case RequestState::kWaiting:
      waiting_.erase(&entry);
      if (entry.in_cache) (void)cache_.abort(request);
      break;
    case RequestState::kPrefetching:
      --prefetching_;
      (void)cache_.abort(request);
      break;
    case RequestState::kLoading:
    case RequestState::kRunning:
      take_from_running(entry);
      if (entry.in_batch) {
        // Its blocks are being written and its tokens read until the step is complete.
        ending_.push_back(std::move(found->second));
        entries_.erase(found);
        return {};
      }
      (void)prefix_.abort(request);
      break;
    case RequestState::kHandingOver:
      std::erase(handing_over_, &entry);
      break;
  }
  entries_.erase(found);
  return {};
}

void ResourceManagerImpl::take_from_running(Entry& entry) {
  const auto at = std::lower_bound(running_.begin(), running_.end(), &entry, ComesBefore{});
  TIERCEL_ASSERT(at != running_.end() && *at == &entry, "who has device blocks stands in the list");
  running_.erase(at);
  unannounce(entry);
  stop_computing(entry);
}

void ResourceManagerImpl::unannounce(Entry& entry) {
  if (!entry.announces) return;
  entry.announces = false;
  announced_.erase(entry.announced_key);
}

void ResourceManagerImpl::send_back(Entry& entry, bool drop) {
  take_from_running(entry);
  const bool keeps_saves = !drop && entry.state == RequestState::kRunning;
  (void)(keeps_saves ? prefix_.finish(entry.id) : prefix_.abort(entry.id));
  entry.state = RequestState::kWaiting;
  if (entry.is_private) entry.sequence.reset();
  entry.is_private = entry.has_computed = entry.looked_at = entry.in_cache = entry.loads_partial =
      entry.waits = false;
  forget_await(entry);
  entry.computed_tokens = entry.tokens_to_compute = 0;
  entry.device_blocks = entry.prefill_blocks = entry.hit_blocks = entry.shared_blocks = 0;
  entry.table = {};
  waiting_.insert(&entry);
}

void ResourceManagerImpl::count_preemption(Entry& entry, std::vector<RequestId>& told) {
  told.push_back(entry.id);
  ++entry.finished.preemptions;
  ++stats_.preempted;
}

void ResourceManagerImpl::leave_batch(Entry& entry) {
  entry.in_batch = false;
  entry.batch_tokens = 0;
}

Status ResourceManagerImpl::complete(uint64_t step, std::span<const StepResult> results) {
  if (!is_open_ || step != last_step_) {
    return Error(Code::kInvalid, fmt::format("step {} is not open; open is {}", step,
                                             is_open_ ? std::to_string(last_step_) : "none"));
  }
  const auto refuse = [&](RequestId id, std::string_view what) {
    return Error(Code::kInvalid,
                 fmt::format("a result of step {} for request {}, {}", step, id.value(), what));
  };
  const auto entry_of = [&](RequestId id) -> Entry* {
    const auto found = entries_.find(id);
    return found == entries_.end() || !found->second->in_batch ? nullptr : found->second.get();
  };
  ++last_validation_;
  for (const StepResult& result : results) {
    Entry* entry = entry_of(result.id);
    if (entry == nullptr) {
      if (!is_ending(result.id)) return refuse(result.id, "which is not in its batch");
      continue;
    }
    if (std::exchange(entry->validation, last_validation_) == last_validation_) {
      return refuse(result.id, "which has one already");
    }
    const bool samples = entry->computed_tokens + entry->batch_tokens == entry->tokens.size();
    if (samples != result.token.has_value()) {
      return refuse(result.id, samples ? "without a token; it samples"
                                       : "with a token; it does not sample in this step");
    }
  }
  for (const StepResult& result : results) {
    Entry* entry = entry_of(result.id);
    if (entry == nullptr) continue;
    if (result.token && entry->batch_tokens == 1) ++stats_.decode_tokens;
    entry->computed_tokens += entry->batch_tokens;
    entry->has_computed = true;
    leave_batch(*entry);
    if (result.token) take_token(*entry, *result.token);
    share(*entry);
    if (!result.token) continue;
    const auto reason = end_after(*entry, result.finished);
    if (reason == FinishReason::kHandedOver) {
      hand_over(*entry);
    } else if (reason) {
      finish(*entry, *reason);
    }
  }
  close_step();
  return {};
}

bool ResourceManagerImpl::is_ending(RequestId id) const {
  return std::any_of(ending_.begin(), ending_.end(),
                     [&](const auto& ending) { return ending->id == id; });
}

void ResourceManagerImpl::take_token(Entry& entry, TokenId token) {
  if (entry.tokens.size() == entry.given_tokens) entry.finished.first_token = clock_.now();
  entry.tokens.push_back(token);
  entry.finished.outputs.push_back(token);
  if (caches_outputs() && !entry.is_private) entry.sequence->append({&token, 1});
}

std::optional<FinishReason> ResourceManagerImpl::end_after(const Entry& entry,
                                                           bool end_of_sequence) const {
  if (end_of_sequence) return FinishReason::kEndOfSequence;
  if (entry.tokens.size() >= entry.tokens_max) return entry.at_tokens_max;
  if (config_.role == EngineRole::kPrefill) return FinishReason::kHandedOver;
  return std::nullopt;
}

void ResourceManagerImpl::finish(Entry& entry, FinishReason reason) {
  take_from_running(entry);
  (void)prefix_.finish(entry.id);
  report(entry, reason);
}

void ResourceManagerImpl::report(Entry& entry, FinishReason reason) {
  entry.finished.reason = reason;
  entry.finished.ended = clock_.now();
  finished_.push_back(std::move(entry.finished));
  ++stats_.finished;
  if (entry.sequence && spare_sequences_.size() < kSpareSequencesMax) {
    spare_sequences_.push_back(*std::move(entry.sequence));
  }
  entries_.erase(entry.id);
}

void ResourceManagerImpl::close_step() {
  // What has no result was not computed.
  for (Entry* entry : running_) {
    if (!entry->in_batch) continue;
    stats_.lost_tokens += entry->batch_tokens;
    leave_batch(*entry);
  }
  for (const auto& entry : ending_) (void)prefix_.abort(entry->id);
  ending_.clear();
  is_open_ = false;
}

Status ResourceManagerImpl::fail_step(uint64_t step, bool device_memory_lost) {
  const bool names_none = step == 0 && !is_open_ && device_memory_lost;
  if (!names_none && (!is_open_ || step != last_step_)) {
    return Error(Code::kInvalid, fmt::format("step {} is not open; open is {}", step,
                                             is_open_ ? std::to_string(last_step_) : "none"));
  }
  if (is_open_) close_step();
  if (!device_memory_lost) return {};
  while (!running_.empty()) {
    Entry& entry = *running_.back();
    count_preemption(entry, preempted_next_);
    send_back(entry, true);
  }
  prefix_.device_lost();
  return {};
}

std::optional<FinishedRequest> ResourceManagerImpl::take_finished() {
  if (finished_.empty()) return std::nullopt;
  FinishedRequest finished = std::move(finished_.front());
  finished_.pop_front();
  return finished;
}

void ResourceManagerImpl::weights_changed(const Namespace& name_space) {
  namespace_ = name_space;
  // In the order of the list, so that the same calls give the same steps.
  const std::vector<Entry*> with_blocks = running_;
  for (Entry* entry : with_blocks) {
    if (entry->has_computed || entry->in_batch) {
      entry->is_private = protections_.own_weights;
      tell_computing(*entry);
    } else {
      entry->sequence.reset();
      count_preemption(*entry, preempted_next_);  // a step that was lost may have had it
      send_back(*entry, true);
    }
  }
  for (Entry* entry : waiting_) {
    if (entry->in_cache) (void)cache_.abort(entry->id);
    entry->in_cache = entry->looked_at = entry->waits = false;
    entry->tokens_to_compute = 0;
    forget_await(*entry);
    entry->sequence.reset();
  }
  std::vector<Entry*> prefetching;
  for (const auto& [id, entry] : entries_) {
    if (entry->state == RequestState::kPrefetching) prefetching.push_back(entry.get());
  }
  std::sort(prefetching.begin(), prefetching.end(), ComesBefore{});
  for (Entry* entry : prefetching) {
    (void)cache_.abort(entry->id);
    entry->in_cache = entry->looked_at = false;
    entry->sequence.reset();
    entry->state = RequestState::kWaiting;
    waiting_.insert(entry);
  }
  prefetching_ = 0;
}

}  // namespace tiercel
