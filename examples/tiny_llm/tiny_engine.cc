// SPDX-License-Identifier: Apache-2.0
#include "tiny_llm/tiny_engine.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/quantity.h"

namespace tiercel::tiny {
namespace {

using namespace std::chrono_literals;

constexpr size_t kComplaintsMax = 3;
constexpr Duration kPatience = 60s;
// What has not ended when all requests have is a save, which nobody waits for.
constexpr Duration kClosePatience = 10s;

Error broken_word(RequestId request, const std::string& what) {
  return Error(Code::kInternal,
               "request " + std::to_string(request.value()) + " was scheduled with " + what);
}

CacheConfig cache_config(const TinyEngineOptions& options, const std::vector<RankKv>& ranks) {
  CacheConfig config;
  config.spec = options.weights.spec;
  for (uint32_t group = 0; group < config.spec.groups.size(); ++group) {
    config.payload_bytes.emplace_back();
    for (const RankKv& rank : ranks)
      config.payload_bytes[group].push_back(rank.payload_bytes(group));
  }
  config.device_blocks = options.device_blocks;
  config.host_blocks = options.host_blocks;
  config.host_extents = 1;
  config.with_store = !options.store_url.empty();
  if (!options.host) config.device_to_host = WritePolicy::kNone;
  // What is slow here is the machine, a sanitizer, or both; it says nothing of the answers.
  config.save_deadline = kPatience;
  config.hold_limit = 10 * kPatience;
  return config;
}

}  // namespace

Result<std::unique_ptr<TinyEngine>> TinyEngine::open(const TinyEngineOptions& options,
                                                     const Clock& clock,
                                                     std::shared_ptr<StoreRegistry> registry) {
  std::unique_ptr<TinyEngine> engine(new TinyEngine(options, clock));
  TIERCEL_TRY(engine->open_parts(std::move(registry)));
  return engine;
}

TinyEngine::TinyEngine(const TinyEngineOptions& options, const Clock& clock)
    : options_(options), clock_(clock), weights_(options.weights), moved_(clock.now()) {}

Status TinyEngine::open_parts(std::shared_ptr<StoreRegistry> registry) {
  LocalCacheConfig config;
  const TinyConfig& model = weights_.model->config();
  for (uint32_t rank = 0; rank < model.rank_count; ++rank) {
    TIERCEL_TRY_ASSIGN(RankKv kv, RankKv::create(model, options_.device_blocks));
    TIERCEL_TRY_ASSIGN(DeviceLayout layout, kv.layout());
    ranks_.push_back(std::move(kv));
    config.device_layouts.push_back(std::move(layout));
  }
  config.cache = cache_config(options_, ranks_);
  config.store_url = options_.store_url;
  config.disk = options_.disk;
  config.huge_pages = false;
  TIERCEL_TRY_ASSIGN(local_, LocalCache::open(config, clock_, std::move(registry)));
  TIERCEL_TRY_ASSIGN(prefix_, PrefixCache::create(config.cache, local_->cache()));
  TIERCEL_TRY_ASSIGN(
      manager_, ResourceManager::create(options_.scheduler, local_->cache(), *prefix_, clock_));
  return {};
}

Sequence TinyEngine::make_sequence(const EngineRequest& request) const {
  return Sequence(make_root(weights_.name_space, request.scope), config().block_tokens);
}

Status TinyEngine::add(EngineRequest request) {
  Life life{request, make_sequence(request), request.prompt, true, false, false, {}};
  if (!options_.share) request.scope.tenant_salt = "alone-" + std::to_string(request.id.value());
  TIERCEL_TRY(manager_->add(std::move(request)));
  const std::vector<TokenId>& outputs = life.request.outputs;
  life.tokens.insert(life.tokens.end(), outputs.begin(), outputs.end());
  life.sequence.append(life.tokens);
  life.answer.outputs = outputs;
  const RequestId id = life.request.id;
  lives_.insert_or_assign(id, std::move(life));
  return {};
}

Status TinyEngine::abort(RequestId request) {
  TIERCEL_TRY(manager_->abort(request));
  lives_.erase(request);
  return {};
}

Status TinyEngine::step() {
  if (options_.stop != nullptr && options_.stop->load()) {
    return Error(Code::kCancelled, "stopped before the check was through");
  }
  const Batch& batch = manager_->schedule();
  for (const RequestId request : batch.preempted) {
    const auto life = lives_.find(request);
    if (life == lives_.end()) continue;
    life->second.fresh = true;
    life->second.mixed_kv = false;
  }
  if (batch.requests.empty()) {
    take_finished();
    return wait_for_something();
  }
  if (must_let_transfers_end()) {
    // Without results nothing was computed, and the same is scheduled again.
    TIERCEL_TRY(manager_->complete(batch.step, {}));
    return wait_for_something();
  }
  moved_ = clock_.now();
  TIERCEL_TRY(take_batch(batch));
  take_finished();
  return {};
}

Status TinyEngine::take_batch(const Batch& batch) {
  std::vector<TinyChunk> chunks;
  size_t samples = 0;
  for (const ScheduledRequest& scheduled : batch.requests) {
    const auto life = lives_.find(scheduled.id);
    if (life == lives_.end()) return broken_word(scheduled.id, "nobody behind it");
    TIERCEL_TRY(before_chunk(scheduled, life->second));
    TinyChunk chunk{scheduled.tokens, scheduled.first_token, {}, scheduled.samples};
    for (uint32_t group = 0; group < config().group_count(); ++group) {
      chunk.block_tables[group] = scheduled.block_table.group(group);
    }
    if (options_.fault == PlantedFault::kShareUncomputed && !scheduled.samples) {
      chunk.tokens = chunk.tokens.first(chunk.tokens.size() - 1);
      ++findings_.planted_faults;
    }
    chunks.push_back(chunk);
    samples += scheduled.samples ? 1 : 0;
  }
  const uint32_t vocabulary = config().vocabulary;
  std::vector<float> logits(samples * vocabulary);
  weights_.model->forward(ranks_, chunks, logits);
  if (loses_device_) return fail_step(batch.step);

  std::vector<StepResult> results;
  std::span<const float> rest(logits);
  for (const ScheduledRequest& scheduled : batch.requests) {
    Life& life = lives_.at(scheduled.id);
    compare_after(scheduled, life);
    StepResult result{scheduled.id, std::nullopt, false};
    if (scheduled.samples) {
      const std::span<const float> mine = rest.first(vocabulary);
      rest = rest.subspan(vocabulary);
      result.token = sample_greedily(mine);
      result.finished = *result.token == kEndOfSequence;
      life.answer.outputs.push_back(*result.token);
      life.answer.logits.insert(life.answer.logits.end(), mine.begin(), mine.end());
      life.tokens.push_back(*result.token);
      life.sequence.append(std::span(&*result.token, 1));
    }
    results.push_back(result);
  }
  return manager_->complete(batch.step, results);
}

Status TinyEngine::before_chunk(const ScheduledRequest& scheduled, Life& life) {
  const uint64_t end = scheduled.first_token + scheduled.tokens.size();
  if (scheduled.tokens.empty() || end > life.tokens.size()) {
    return broken_word(scheduled.id, "tokens up to " + std::to_string(end) + " of " +
                                         std::to_string(life.tokens.size()));
  }
  const auto known = life.tokens.begin() + static_cast<ptrdiff_t>(scheduled.first_token);
  if (!std::equal(scheduled.tokens.begin(), scheduled.tokens.end(), known)) {
    return broken_word(scheduled.id, "tokens that are not its own");
  }
  if (scheduled.samples != (end == life.tokens.size())) {
    return broken_word(scheduled.id, "a token to sample in the wrong place");
  }
  const uint64_t covered = uint64_t{scheduled.block_table.block_count} * config().block_tokens;
  if (covered < end) return broken_word(scheduled.id, "too few blocks");
  if (life.fresh) plant(scheduled);
  compare_before(scheduled, life);
  life.fresh = false;
  return {};
}

void TinyEngine::compare_before(const ScheduledRequest& scheduled, const Life& life) {
  if (life.mixed_kv) return;
  for (uint32_t group = 0; group < config().group_count(); ++group) {
    compare_found(scheduled, life, group);
  }
}

void TinyEngine::compare_found(const ScheduledRequest& scheduled, const Life& life,
                               uint32_t group) {
  const uint32_t block_tokens = config().block_tokens;
  const uint64_t read_from = config().first_seen(group, scheduled.first_token);
  const auto full = static_cast<uint32_t>(scheduled.first_token / block_tokens);
  const auto table = scheduled.block_table.group(group);
  const auto compare = [&](const BlockKey& key, uint32_t tokens, uint32_t block) {
    const auto difference = weights_.recorder->check(key, group, tokens, ranks_, table[block]);
    if (life.fresh) ++findings_.compared_blocks;
    if (difference) complain(scheduled.id, block, life.fresh ? "found" : "kept", *difference);
  };
  for (auto block = static_cast<uint32_t>(read_from / block_tokens); block < full; ++block) {
    compare(life.sequence.keys()[block], block_tokens, block);
  }
  const auto partial = static_cast<uint32_t>(scheduled.first_token % block_tokens);
  if (!life.fresh || partial == 0) return;
  // Part of a block can have been found only by its own key.
  Sequence sequence = make_sequence(life.request);
  sequence.append(std::span(life.tokens).first(scheduled.first_token));
  compare(*sequence.partial_key(), partial, full);
  ++findings_.partial_blocks;
}

void TinyEngine::compare_after(const ScheduledRequest& scheduled, const Life& life) {
  if (life.mixed_kv) return;
  const uint32_t block_tokens = config().block_tokens;
  const uint64_t end = scheduled.first_token + scheduled.tokens.size();
  const auto first = static_cast<uint32_t>(scheduled.first_token / block_tokens);
  for (uint32_t group = 0; group < config().group_count(); ++group) {
    const auto table = scheduled.block_table.group(group);
    for (uint32_t block = first; block < end / block_tokens; ++block) {
      const auto difference = weights_.recorder->record(life.sequence.keys()[block], group,
                                                        block_tokens, ranks_, table[block]);
      ++findings_.computed_blocks;
      if (difference) complain(scheduled.id, block, "computed", *difference);
    }
  }
}

void TinyEngine::complain(RequestId request, uint32_t block, const char* when,
                          const KvDifference& difference) {
  if (!wrong_.emplace(request, block).second) return;
  ++findings_.wrong_blocks;
  if (findings_.complaints.size() >= kComplaintsMax) return;
  findings_.complaints.push_back("request " + std::to_string(request.value()) + ", block " +
                                 std::to_string(block) + " as it was " + when + ": " +
                                 to_string(difference));
}

void TinyEngine::plant(const ScheduledRequest& scheduled) {
  const auto found = static_cast<uint32_t>(scheduled.first_token / config().block_tokens);
  const auto table = scheduled.block_table.group(0);  // of which every block is read
  if (options_.fault == PlantedFault::kByteFlip && found >= 1) {
    // The lowest byte of an element, which is of the least weight.
    ranks_.back().block_bytes(KvPart::kValue, 0, table[0])[0] ^= std::byte{1};
    ++findings_.planted_faults;
  }
  if (options_.fault == PlantedFault::kSwapBlocks && found >= 2) {
    for (RankKv& rank : ranks_) {
      for (uint32_t layer = 0; layer < config().end_layer(0); ++layer) {
        for (const KvPart part : {KvPart::kKey, KvPart::kValue}) {
          const auto first = rank.block_bytes(part, layer, table[0]);
          std::swap_ranges(first.begin(), first.end(),
                           rank.block_bytes(part, layer, table[1]).begin());
        }
      }
    }
    ++findings_.planted_faults;
  }
}

bool TinyEngine::must_let_transfers_end() const {
  return (loses_device_ || options_.fault == PlantedFault::kByteFlip ||
          options_.fault == PlantedFault::kSwapBlocks) &&
         !local_->cache().idle();
}

Status TinyEngine::fail_step(uint64_t step) {
  loses_device_ = false;
  for (RankKv& rank : ranks_) rank.fill(std::byte{0x7f});
  return manager_->fail_step(step, true);
}

void TinyEngine::take_finished() {
  while (auto finished = manager_->take_finished()) {
    const auto life = lives_.find(finished->id);
    if (life == lives_.end()) continue;
    ended_.insert_or_assign(finished->id, Ended{std::move(life->second.answer),
                                                life->second.mixed_answer, std::move(*finished)});
    lives_.erase(life);
  }
}

Status TinyEngine::wait_for_something() {
  if (clock_.now() - moved_ > kPatience) {
    const CacheStats stats = local_->cache().stats();
    std::string what = "nothing moved for a minute, with " + std::to_string(lives_.size()) +
                       " requests alive and " + std::to_string(stats.jobs_in_flight) +
                       " transfers that had not ended";
    if (!options_.store_url.empty()) {
      what += "; the store (" + quoted_text(options_.store_url) + ") may not answer";
    }
    return Error(Code::kTimeout, what);
  }
  local_->wait(std::clamp<Duration>(manager_->next_deadline() - clock_.now(), 0ms, 5ms));
  return {};
}

Status TinyEngine::run() {
  while (!idle()) TIERCEL_TRY(step());
  return {};
}

Status TinyEngine::drain() {
  moved_ = clock_.now();
  while (!idle() || !local_->cache().idle()) TIERCEL_TRY(step());
  return {};
}

Result<TinyEngine::Ended> TinyEngine::take_ended(RequestId request) {
  const auto found = ended_.find(request);
  if (found == ended_.end()) {
    return Error(Code::kNotFound,
                 "request " + std::to_string(request.value()) + " has not ended by itself");
  }
  Ended ended = std::move(found->second);
  ended_.erase(found);
  return ended;
}

void TinyEngine::change_weights(const TinyWeightsRevision& weights, bool announce) {
  weights_ = weights;
  if (announce) {
    manager_->weights_changed(weights.name_space);
  } else {
    ++findings_.planted_faults;
  }
  for (auto& [id, life] : lives_) {
    life.sequence = make_sequence(life.request);
    life.sequence.append(life.tokens);
    life.mixed_kv = life.mixed_kv || !life.fresh;
    life.mixed_answer = life.mixed_answer || life.mixed_kv || !life.answer.outputs.empty();
  }
}

std::string TinyEngine::check() const {
  std::string wrong = manager_->check();
  if (wrong.empty()) wrong = prefix_->check();
  if (wrong.empty()) wrong = local_->cache().check(false, prefix_->hold_count());
  return wrong;
}

Status TinyEngine::close() { return local_->close(kClosePatience); }

}  // namespace tiercel::tiny
