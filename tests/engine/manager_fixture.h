// SPDX-License-Identifier: Apache-2.0
//
// A ResourceManager over a FakeDataPlane that moves bytes when a test says that something has
// completed, and the AttentionModel in place of a language model; short words for what tests do.
#pragma once

#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "cache/cache_fixture.h"
#include "engine/prefix_cache.h"
#include "engine/resource_manager.h"
#include "support/attention_model.h"

namespace tiercel {

struct ManagerSetup {
  uint32_t device_blocks = 64;
  uint32_t host_blocks = 64;
  uint32_t ranks = 1;
  bool with_store = false;
  KvSpec spec = test_spec();  // blocks of 4 tokens
  ResourceManagerConfig manager;
  LoadOrRecomputeConfig costs;
};

class ManagerFixture : public CacheFixture {
 protected:
  static constexpr uint32_t kBlockTokens = 4;

  void open_manager(ManagerSetup setup = {}) {
    manager.reset();
    prefix.reset();
    CacheConfig config = test_config(setup.host_blocks, setup.ranks, setup.with_store);
    config.spec = setup.spec;
    config.payload_bytes.assign(
        setup.spec.groups.size(),
        std::vector<uint64_t>(setup.ranks, AttentionModel::block_bytes(kBlockTokens)));
    config.device_blocks = setup.device_blocks;
    config.load_or_recompute = setup.costs;
    open(config);
    prefix = *PrefixCache::create(config, *cache);
    model = std::make_unique<AttentionModel>(config.spec, setup.ranks, setup.device_blocks);
    auto created = ResourceManager::create(setup.manager, *cache, *prefix, clock);
    ASSERT_TRUE(created) << created.error().to_string();
    manager = *std::move(created);
    host_.clear();
  }

  // Tokens first, first + 1, …
  static EngineRequest request(uint64_t id, uint32_t prompt_tokens, TokenId first = 0,
                               uint32_t outputs = 4) {
    EngineRequest made;
    made.id = RequestId(id);
    made.prompt.resize(prompt_tokens);
    std::iota(made.prompt.begin(), made.prompt.end(), first);
    made.output_tokens_max = outputs;
    return made;
  }

  Status add(const EngineRequest& wanted) {
    Status added = manager->add(wanted);
    if (added) {
      model->add(wanted);
      requests_[wanted.id] = wanted;
    }
    return added;
  }

  void abort(uint64_t id) {
    ASSERT_TRUE(manager->abort(RequestId(id)));
    aborted_.push_back(RequestId(id));
    if (!is_open) forget_aborted();
    check();
  }

  // One step, its batch run by the model and completed; how many tokens.
  uint32_t step() {
    const Batch& batch = begin_step();
    if (batch.requests.empty()) return 0;
    const uint32_t tokens = batch.token_count;
    end_step();
    return tokens;
  }
  const Batch& begin_step() {
    const Batch& batch = manager->schedule();
    take_finished();  // hand-overs
    is_open = !batch.requests.empty();
    check();
    if (const std::string wrong = model->run(batch, weights, &results); !wrong.empty()) {
      ADD_FAILURE() << wrong;
    }
    return batch;
  }
  void end_step() {
    const Status completed = manager->complete(manager->schedule().step, results);
    EXPECT_TRUE(completed) << completed.error().to_string();
    is_open = false;
    forget_aborted();
    check();
    take_finished();
  }

  void take_finished() {
    while (auto done = manager->take_finished()) {
      model->forget(done->id);
      if (weights == 0) {
        const auto& asked = requests_.at(done->id);
        const auto expected =
            AttentionModel::outputs_of(asked, weights, static_cast<uint32_t>(done->outputs.size()));
        EXPECT_EQ(done->outputs, expected) << "request " << done->id.value();
      }
      finished.push_back(*std::move(done));
    }
  }

  // What a rank does for one open operation, then its completion.
  void carry_out(size_t index, Code code = Code::kOk) {
    const FakeDataPlane::Open entry = plane->open[index];
    if (code == Code::kOk) move(entry.op, entry.rank);
    plane->complete(index, code);
  }
  size_t carry_out_all(OpKind kind, Code code = Code::kOk) {
    size_t count = 0;
    for (size_t i = 0; i < plane->open.size();) {
      if (plane->open[i].op.kind != kind) {
        ++i;
        continue;
      }
      carry_out(i, code);
      ++count;
    }
    return count;
  }
  void carry_out_everything() {
    while (!plane->open.empty()) {
      const BlockOp& op = plane->open.front().op;
      const bool misses = (op.kind == OpKind::kStoreExists || op.kind == OpKind::kStoreGet) &&
                          !store_.contains({op.key, op.group.value(), plane->open.front().rank});
      carry_out(0, misses ? Code::kNotFound : Code::kOk);
    }
  }

  // One step, in which everything that has begun is carried out, and what comes of it.
  void run_once() {
    carry_out_everything();
    step();
    carry_out_everything();
    step();
  }
  // Steps, with every transfer at once, until nothing lives and nothing moves.
  void run_to_end(int steps_max = 2000) {
    for (int i = 0; i < steps_max; ++i) {
      carry_out_everything();
      const uint32_t tokens = step();
      if (tokens == 0 && manager->idle() && plane->open.empty() && cache->idle()) return;
      if (tokens == 0) clock.advance(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << "never came to rest";
  }
  // One request, alone, from beginning to end.
  FinishedRequest serve(const EngineRequest& wanted) {
    const Status added = add(wanted);
    EXPECT_TRUE(added) << added.error().to_string();
    run_to_end();
    for (const FinishedRequest& done : finished) {
      if (done.id == wanted.id) return done;
    }
    ADD_FAILURE() << "request " << wanted.id.value() << " has not ended";
    return {};
  }

  void check() {
    ASSERT_EQ(manager->check(), "");
    ASSERT_EQ(prefix->check(), "");
    ASSERT_EQ(cache->check(false, prefix->hold_count()), "");
  }
  // Nothing is left of any request.
  void check_calm() {
    EXPECT_TRUE(manager->idle());
    EXPECT_EQ(prefix->stats().referenced_blocks, 0u);
    EXPECT_EQ(cache->check(true, prefix->hold_count()), "");
  }

  std::optional<RequestState> state(uint64_t id) const { return manager->state(RequestId(id)); }
  // Of a batch: the tokens of one request; 0 if it is not in it.
  static uint32_t tokens_of(const Batch& batch, uint64_t id) {
    for (const ScheduledRequest& scheduled : batch.requests) {
      if (scheduled.id == RequestId(id)) return static_cast<uint32_t>(scheduled.tokens.size());
    }
    return 0;
  }

  std::unique_ptr<PrefixCache> prefix;
  std::unique_ptr<AttentionModel> model;
  std::unique_ptr<ResourceManager> manager;
  std::vector<StepResult> results;
  std::vector<FinishedRequest> finished;
  uint64_t weights = 0;
  bool is_open = false;

 private:
  void forget_aborted() {
    for (const RequestId id : aborted_) {
      if (!manager->state(id)) model->forget(id);
    }
    aborted_.clear();
  }
  void move(const BlockOp& op, uint32_t rank) {
    const uint32_t group = op.group.value();
    const std::tuple name(op.key, group, rank);
    std::vector<std::byte>& slot = host_[{op.slot.value(), rank}];
    switch (op.kind) {
      case OpKind::kSave: {
        const auto block = model->block(rank, group, op.device_block.value());
        slot.assign(block.begin(), block.end());
        break;
      }
      case OpKind::kLoad:
        std::copy(slot.begin(), slot.end(),
                  model->block(rank, group, op.device_block.value()).begin());
        break;
      case OpKind::kStorePut:
        store_[name] = slot;
        break;
      case OpKind::kStoreGet:
        slot = store_[name];
        break;
      default:
        break;
    }
  }

  std::map<std::pair<uint32_t, uint32_t>, std::vector<std::byte>> host_;  // slot, rank
  std::map<std::tuple<BlockKey, uint32_t, uint32_t>, std::vector<std::byte>> store_;
  std::map<RequestId, EngineRequest> requests_;
  std::vector<RequestId> aborted_;
};

}  // namespace tiercel
