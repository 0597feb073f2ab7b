// SPDX-License-Identifier: Apache-2.0
#include "tiny_llm/check_run.h"

#include <algorithm>
#include <utility>

#include "base/random.h"

namespace tiercel::tiny {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kOldWeightsSeed = 1, kNewWeightsSeed = 2;
constexpr uint64_t kDiskBytes = 64ull << 20;
constexpr uint32_t kRunningMax = 8;
constexpr uint64_t kStepsBetweenLosses = 15;
// Fails, cuts and damages, and says ok to some of it.
constexpr const char* kFaultyStore =
    "faulty+memory:faulty?fault_seed=7&fault_error=0.03&fault_corrupt=0.05&fault_truncate=0.03"
    "&fault_delay=0.2&fault_delay_max=2ms";

// One case under way.
class CaseRun {
 public:
  CaseRun(const CheckCase& check_case, const CheckWorld& world)
      : case_(check_case), world_(world), registry_(make_store_registry()) {}

  Result<CaseOutcome> run() {
    const Status ran = case_.roles ? run_roles() : run_turns();
    if (!ran && ran.code() != Code::kTimeout) return ran.error();
    if (!ran) {
      // What was compared until then stands; nothing was found to be wrong by waiting.
      outcome_.stuck = true;
      outcome_.unproven.push_back("given up: " + ran.error().message());
    }
    complain_of_what_was_not_tested();
    return std::move(outcome_);
  }

 private:
  Status run_turns() {
    TIERCEL_TRY_ASSIGN(auto engine, open(world_.old_weights()));
    TIERCEL_TRY(run_workload(*engine, world_.old_weights().workload));
    if (case_.turn != CheckTurn::kNone) TIERCEL_TRY(run_again(engine));
    return end(std::move(engine));
  }

  // The second run, by `engine` or what takes its place.
  Status run_again(std::unique_ptr<TinyEngine>& engine) {
    const bool new_weights = case_.has_new_weights();
    const CheckWorld::Revision& revision =
        new_weights ? world_.new_weights() : world_.old_weights();
    if (case_.turn == CheckTurn::kNewWeights) {
      TIERCEL_TRY(change_in_flight(*engine, revision));
      return run_workload(*engine, revision.workload);
    }
    TIERCEL_TRY(engine->drain());
    std::unique_ptr<TinyEngine> first = std::move(engine);
    // A restart needs the folder of the first one. A second engine finds the first one alive: a
    // pool of memory goes with the last handle of it.
    const bool restart = case_.turn != CheckTurn::kSecondEngine;
    if (restart) TIERCEL_TRY(end(std::move(first)));
    if (new_weights && world_.options().fault == PlantedFault::kStaleWeights) {
      ++outcome_.findings.planted_faults;
    }
    TIERCEL_TRY_ASSIGN(engine, open(revision));
    TIERCEL_TRY(run_workload(*engine, revision.workload));
    return restart ? Status() : end(std::move(first));
  }

  Result<std::unique_ptr<TinyEngine>> open(const CheckWorld::Revision& revision,
                                           EngineRole role = EngineRole::kMixed) {
    TinyEngineOptions options;
    options.weights = revision.weights;
    options.device_blocks = case_.device_blocks;
    options.host_blocks = case_.host_blocks;
    options.host = case_.host;
    options.share = case_.share;
    options.fault = world_.options().fault;
    options.stop = world_.options().stop;
    if (case_.store)
      options.store_url = case_.faulty_store ? kFaultyStore : world_.options().store_url;
    options.scheduler.cache_outputs = case_.cache_outputs;
    options.scheduler.save_preempted = case_.save_preempted;
    if (case_.disk) {
      options.disk.path = world_.options().disk_folder;
      options.disk.instance = instance_name();
      options.disk.bytes = kDiskBytes;
      // What a run with another model has left.
      options.disk.reset = !opened_;
    }
    opened_ = true;
    options.scheduler.role = role;
    options.scheduler.step_tokens_max = case_.step_tokens;
    options.scheduler.prefill_chunk_tokens_max = case_.chunk_tokens;
    options.scheduler.running_max = kRunningMax;
    options.scheduler.context_tokens_max = 4096;
    // Slow machines must not change what is found; nothing waits so long.
    options.scheduler.load_deadline = 60s;
    options.scheduler.prefetch_deadline = 60s;
    options.scheduler.hand_over_deadline = 60s;
    return TinyEngine::open(options, world_.clock(), registry_);
  }

  // Each case, KV type and number of ranks has a part of the folder for itself.
  std::string instance_name() const {
    std::string name(case_.name);
    std::replace_if(
        name.begin(), name.end(), [](char c) { return c == ' ' || c == ',' || c == '+'; }, '_');
    const TinyConfig& config = world_.options().config;
    return name + "." + std::string(to_string(config.kv_type)) + "." +
           std::to_string(config.rank_count) + "." + std::to_string(config.window_layers);
  }

  using Asked = std::vector<std::pair<RequestId, const WorkItem*>>;

  // The weights change while the requests of a wave are in every state. The first prompts are the
  // same for all weights, so whoever begins anew must give the answers of the new ones.
  Status change_in_flight(TinyEngine& engine, const CheckWorld::Revision& revision) {
    const auto& old_wave = world_.old_weights().workload.waves.front();
    const auto& new_wave = revision.workload.waves.front();
    std::vector<RequestId> ids;
    for (const WorkItem& item : new_wave) {
      TIERCEL_TRY_ASSIGN(const RequestId request, add(engine, item));
      ids.push_back(request);
      TIERCEL_TRY(engine.step());
    }
    Asked asked;
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto ended = engine.take_ended(ids[i]);
      if (ended) {
        compare(*ended, old_wave[i]);
      } else {
        asked.emplace_back(ids[i], &new_wave[i]);
      }
    }
    for (const WorkItem& item : new_wave) {
      TIERCEL_TRY_ASSIGN(const RequestId request, add(engine, item));
      asked.emplace_back(request, &item);
    }
    engine.change_weights(revision.weights, world_.options().fault != PlantedFault::kStaleWeights);
    return finish_wave(engine, asked);
  }

  Status run_workload(TinyEngine& engine, const Workload& workload) {
    for (const std::vector<WorkItem>& wave : workload.waves) {
      Asked asked;
      std::vector<RequestId> twins;
      for (const WorkItem& item : wave) {
        if (case_.aborts) {
          TIERCEL_TRY_ASSIGN(const RequestId twin, add(engine, item));
          twins.push_back(twin);
        }
        TIERCEL_TRY_ASSIGN(const RequestId request, add(engine, item));
        asked.emplace_back(request, &item);
      }
      while (!twins.empty()) {
        for (uint64_t steps = random_.below(5); steps > 0; --steps) TIERCEL_TRY(engine.step());
        // kNotFound: it was faster.
        if (engine.abort(twins.back())) ++outcome_.aborted;
        twins.pop_back();
      }
      TIERCEL_TRY(finish_wave(engine, asked));
    }
    return {};
  }

  Status finish_wave(TinyEngine& engine, const Asked& asked) {
    while (!engine.idle()) {
      if (case_.loses_device && ++steps_ % kStepsBetweenLosses == 0) engine.lose_device();
      TIERCEL_TRY(engine.step());
    }
    for (const auto& [request, item] : asked) {
      TIERCEL_TRY_ASSIGN(const TinyEngine::Ended ended, engine.take_ended(request));
      compare(ended, *item);
    }
    return {};
  }

  // Each prompt by one instance, which samples the first token; the rest by another one.
  Status run_roles() {
    TIERCEL_TRY_ASSIGN(auto prefill, open(world_.old_weights(), EngineRole::kPrefill));
    TIERCEL_TRY_ASSIGN(auto decode, open(world_.old_weights(), EngineRole::kDecode));
    for (const std::vector<WorkItem>& wave : world_.old_weights().workload.waves) {
      Asked asked;
      for (const WorkItem& item : wave) {
        TIERCEL_TRY_ASSIGN(const RequestId request, add(*prefill, item));
        asked.emplace_back(request, &item);
      }
      TIERCEL_TRY(prefill->run());  // which includes the saves
      Asked going_on;
      std::vector<Answer> beginnings;
      for (const auto& [first, item] : asked) {
        TIERCEL_TRY_ASSIGN(TinyEngine::Ended ended, prefill->take_ended(first));
        if (ended.finished.reason != FinishReason::kHandedOver) {
          compare(ended, *item);
          continue;
        }
        TIERCEL_TRY_ASSIGN(const RequestId second, add(*decode, *item, ended.finished.outputs));
        going_on.emplace_back(second, item);
        beginnings.push_back(std::move(ended.answer));
      }
      TIERCEL_TRY(decode->run());
      for (size_t i = 0; i < going_on.size(); ++i) {
        TIERCEL_TRY_ASSIGN(TinyEngine::Ended ended, decode->take_ended(going_on[i].first));
        std::vector<float>& logits = ended.answer.logits;
        logits.insert(logits.begin(), beginnings[i].logits.begin(), beginnings[i].logits.end());
        compare(ended, *going_on[i].second);
      }
    }
    TIERCEL_TRY(end(std::move(prefill)));
    return end(std::move(decode));
  }

  Result<RequestId> add(TinyEngine& engine, const WorkItem& item,
                        const std::vector<TokenId>& outputs = {}) {
    EngineRequest request;
    request.outputs = outputs;
    request.id = RequestId(++last_request_);
    request.prompt = item.prompt;
    request.output_tokens_max = item.output_tokens_max;
    const RequestId id = request.id;
    TIERCEL_TRY(engine.add(std::move(request)));
    return id;
  }

  void compare(const TinyEngine::Ended& ended, const WorkItem& item) {
    if (ended.finished.outputs != ended.answer.outputs) {
      outcome_.complaints.push_back("'" + item.name + "': the scheduler has other outputs");
    }
    if (ended.mixed) return;
    ++outcome_.requests;
    // A request that has outgrown the pool may say less, but nothing else.
    const size_t count = ended.answer.outputs.size();
    const bool is_cut = ended.finished.reason == FinishReason::kContextLimit &&
                        count < item.expected.outputs.size();
    const Answer expected = is_cut ? item.expected.first(count) : item.expected;
    const bool same =
        ended.answer.outputs == expected.outputs && ended.answer.same_logits(expected);
    if (!same) ++outcome_.wrong_answers;
  }

  Status end(std::unique_ptr<TinyEngine> engine) {
    TIERCEL_TRY(engine->drain());
    const std::string wrong = engine->check();
    if (!wrong.empty()) outcome_.complaints.push_back(wrong);
    const ResourceManagerStats scheduler = engine->scheduler_stats();
    const CacheStats cache = engine->cache_stats();
    const uint64_t block_tokens = world_.options().config.block_tokens;
    outcome_.computed_tokens += scheduler.scheduled_tokens;
    outcome_.preempted += scheduler.preempted;
    outcome_.device_blocks += scheduler.device_hit_tokens / block_tokens;
    outcome_.loaded_blocks += scheduler.loaded_tokens / block_tokens;
    outcome_.disk_blocks += cache.disk_get_blocks;
    outcome_.store_blocks += cache.get_blocks;
    const TinyFindings& findings = engine->findings();
    outcome_.findings.compared_blocks += findings.compared_blocks;
    outcome_.findings.partial_blocks += findings.partial_blocks;
    outcome_.findings.computed_blocks += findings.computed_blocks;
    outcome_.findings.wrong_blocks += findings.wrong_blocks;
    outcome_.findings.planted_faults += findings.planted_faults;
    auto& complaints = outcome_.findings.complaints;
    complaints.insert(complaints.end(), findings.complaints.begin(), findings.complaints.end());
    return engine->close();
  }

  void complain_of_what_was_not_tested() {
    const auto want = [&](bool wanted, uint64_t seen, const char* what) {
      if (wanted && seen == 0) outcome_.unproven.push_back(std::string("saw no ") + what);
    };
    want(case_.wants_device_hits, outcome_.device_blocks, "block shared on the device");
    want(case_.wants_loads, outcome_.loaded_blocks, "load");
    want(case_.wants_disk, outcome_.disk_blocks, "block from disk");
    want(case_.wants_store, outcome_.store_blocks, "block from the store");
    want(case_.wants_preemptions, outcome_.preempted, "preemption");
    want(case_.aborts, outcome_.aborted, "abort");
    want(case_.roles, outcome_.findings.partial_blocks, "partial block handed over");
    const uint64_t found = outcome_.device_blocks + outcome_.loaded_blocks;
    if (found != 0) want(true, outcome_.findings.compared_blocks, "comparison of bytes");
    if (!case_.share && outcome_.findings.compared_blocks > 0 && outcome_.preempted == 0) {
      outcome_.complaints.push_back("found blocks where nothing is shared");
    }
  }

  const CheckCase& case_;
  const CheckWorld& world_;
  const std::shared_ptr<StoreRegistry> registry_;
  CaseOutcome outcome_;
  Random random_{7};
  bool opened_ = false;
  uint64_t steps_ = 0;  // of waves, for losses
  uint64_t last_request_ = 0;
};

}  // namespace

Result<std::unique_ptr<CheckWorld>> CheckWorld::create(const Options& options, const Clock& clock) {
  std::unique_ptr<CheckWorld> world(new CheckWorld(options, clock));
  const bool stale = options.fault == PlantedFault::kStaleWeights;
  TIERCEL_TRY(world->add_revision(kOldWeightsSeed, kOldWeightsSeed));
  if (!options.new_weights) return world;
  TIERCEL_TRY(world->add_revision(kNewWeightsSeed, stale ? kOldWeightsSeed : kNewWeightsSeed));
  return world;
}

Status CheckWorld::add_revision(uint64_t weights_seed, uint64_t namespace_seed) {
  Revision revision;
  TIERCEL_TRY_ASSIGN(revision.model, TinyModel::create(options_.config, weights_seed));
  revision.recorder = std::make_unique<KvRecorder>(options_.config);
  TIERCEL_TRY_ASSIGN(const RankKv kv, RankKv::create(options_.config, 1));
  TIERCEL_TRY_ASSIGN(const DeviceLayout layout, kv.layout());
  revision.weights.model = revision.model.get();
  revision.weights.recorder = revision.recorder.get();
  revision.weights.spec = kv_spec(options_.config, namespace_seed, layout.order());
  TIERCEL_TRY_ASSIGN(revision.weights.name_space, make_namespace(revision.weights.spec));
  TIERCEL_TRY_ASSIGN(revision.workload, make_workload(options_.workload, revision.weights));
  revisions_.push_back(std::move(revision));
  return {};
}

Result<CaseOutcome> run_case(const CheckCase& check_case, const CheckWorld& world) {
  return CaseRun(check_case, world).run();
}

}  // namespace tiercel::tiny
