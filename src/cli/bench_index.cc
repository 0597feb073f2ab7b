// SPDX-License-Identifier: Apache-2.0
//
// The block index: look-ups of a whole request's keys against one-by-one look-ups of the same keys
// in a general hash map, the cost of insertion and eviction, and bytes per block.
#include <algorithm>
#include <numeric>

#include <fmt/core.h>

#include "base/quantity.h"
#include "base/random.h"
#include "cli/bench.h"
#include "cli/bench_hash_map.h"
#include "cli/bench_keys.h"
#include "cli/bench_measure.h"
#include "index/block_index.h"
#include "index/eviction_policy.h"

namespace tiercel {
namespace {

constexpr double kNanosecondsPerSecond = 1e9;
constexpr uint32_t kSmallIndexBlocks = 10'000;
// Requests of one run.
constexpr uint32_t kListsMax = 32;
constexpr uint8_t kHostMask = tier_bit(Tier::kHost);
// Keys, index, hash map, and lists of numbers.
constexpr uint64_t kBytesPerBlock = 32 + 96 + 100 + 8;

class IndexBench {
 public:
  IndexBench(const BenchOptions& options, const BenchContext& context, uint32_t block_count)
      : options_(options),
        context_(context),
        block_count_(block_count),
        list_blocks_(std::min(options.request_blocks(), block_count)),
        list_count_(block_count / list_blocks_),
        keys_(bench_keys(block_count, 1)),
        absent_(bench_keys(size_t{list_blocks_} * std::min(list_count_, kListsMax), 2)) {}

  Result<BenchFigures> run() {
    TIERCEL_TRY(measure_look_ups());
    if (!context_.stopped()) TIERCEL_TRY(measure_changes());
    for (BenchFigure& figure : figures_) {
      figure.conditions.emplace_back("blocks", std::to_string(block_count_));
      figure.conditions.emplace_back("request_blocks", std::to_string(list_blocks_));
    }
    return std::move(figures_);
  }

 private:
  std::string name(const char* what) const {
    return fmt::format("index.{}.{}", what, block_count_);
  }

  BlockIndexOptions index_options() const {
    BlockIndexOptions options;
    options.node_count_max = block_count_;
    options.tier_mask = kHostMask;
    options.seed = 1;
    return options;
  }

  Status measure_look_ups() {
    TIERCEL_TRY_ASSIGN(const std::unique_ptr<BlockIndex> index,
                       BlockIndex::create(index_options()));
    const std::unique_ptr<BenchHashMap> map = make_bench_hash_map(block_count_);
    std::vector<uint32_t> order(block_count_);
    std::iota(order.begin(), order.end(), 0u);
    Random random(3);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    // Without parents, so that the blocks of a request need not be neighbours in memory.
    for (const uint32_t number : order) {
      index->set_place(index->insert(keys_[number], GroupId(0), kNoNode), Tier::kHost,
                       SlotId(number));
      if (map) map->insert(keys_[number], number);
    }
    add_look_ups("find_all", *index, map.get(), keys_, true);
    add_look_ups("find_all_absent", *index, map.get(), absent_, false);
    add_bytes(index->memory_use());
    return {};
  }

  // ns per key over some lists of one run; `look_up(list)` says how many were found.
  template <typename LookUp>
  double look_up_lists(std::span<const BlockKey> keys, uint64_t run, size_t expected,
                       LookUp&& look_up) {
    const uint64_t lists = keys.size() / list_blocks_;
    const uint64_t count = std::min<uint64_t>(lists, kListsMax);
    double seconds = 0;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t list = (run * count + i) % lists;
      const auto part = keys.subspan(list * list_blocks_, list_blocks_);
      request_.assign(part.begin(), part.end());  // the keys themselves are at hand
      size_t found = 0;
      seconds += seconds_of(context_.clock, [&] { found = look_up(std::span(request_)); });
      TIERCEL_ASSERT(found == expected, "a look-up found other keys than were put in");
    }
    return kNanosecondsPerSecond * seconds / static_cast<double>(count * list_blocks_);
  }

  void add_look_ups(const char* what, const BlockIndex& index, const BenchHashMap* map,
                    std::span<const BlockKey> keys, bool present) {
    std::vector<uint32_t> out(list_blocks_);
    const size_t expected = present ? list_blocks_ : 0;
    uint64_t index_run = 0;
    uint64_t map_run = 0;
    const auto in_index = [&] {
      return look_up_lists(keys, index_run++, expected, [&](std::span<const BlockKey> list) {
        return index.find_all(list, GroupId(0), kHostMask, true, out);
      });
    };
    const auto in_map = [&] {
      if (map == nullptr) return 0.0;
      return look_up_lists(keys, map_run++, expected, [&](std::span<const BlockKey> list) {
        return map->find_each(list, out);
      });
    };
    Pairs pairs = in_turns(options_.runs, context_, in_index, in_map);
    const std::string reach = "ratio at most 1";
    figures_.push_back(map != nullptr ? paired_figure(name(what), "ns/block", pairs, reach)
                                      : plain_figure(name(what), "ns/block", pairs.measured, ""));
    if (map != nullptr) {
      figures_.back().conditions.emplace_back("limit_is",
                                              "absl::flat_hash_map, one key after the other");
    }
    figures_.back().conditions.emplace_back("insertion", "random order");
  }

  void add_bytes(const BlockIndex::MemoryUse& use) {
    const auto per_block = [&](uint64_t bytes) {
      return static_cast<double>(bytes) / static_cast<double>(block_count_);
    };
    BenchFigure figure = plain_figure(name("bytes_per_block"), "bytes",
                                      {per_block(use.total_bytes())}, "at most 80, one tier");
    figure.conditions.emplace_back("nodes", fmt::format("{:.2f}", per_block(use.node_bytes)));
    figure.conditions.emplace_back("table", fmt::format("{:.2f}", per_block(use.table_bytes)));
    figure.conditions.emplace_back("places",
                                   fmt::format("{:.2f} a tier", per_block(use.place_bytes)));
    figures_.push_back(std::move(figure));
  }

  // Chains of a request's length, as requests bring them, under least-recently-used eviction: a
  // full index gives up the oldest request and takes in a new one.
  Status measure_changes() {
    TIERCEL_TRY_ASSIGN(const std::unique_ptr<BlockIndex> index,
                       BlockIndex::create(index_options()));
    TIERCEL_TRY_ASSIGN(
        const std::unique_ptr<EvictionPolicy> policy,
        make_eviction_policy("lru", EvictionPolicyContext{*index, Tier::kHost, block_count_}));
    const auto insert = [&](std::span<const BlockKey> keys) {
      NodeId parent = kNoNode;
      for (uint32_t i = 0; i < keys.size(); ++i) {
        const NodeId node = index->insert(keys[i], GroupId(0), parent);
        index->set_place(node, Tier::kHost, SlotId(i));
        policy->insert(node, BlockPosition{.visit = {}, .position = i});
        parent = node;
      }
    };
    const auto evict = [&](size_t count) {
      for (size_t i = 0; i < count; ++i) {
        const NodeId victim = policy->victim(1024);
        policy->erase(victim, true);
        index->clear_place(victim, Tier::kHost);
        index->release_if_unused(victim);
      }
    };
    const std::unique_ptr<BenchHashMap> map = make_bench_hash_map(block_count_);
    const auto list = [&](uint64_t number) {
      return std::span(keys_).subspan(number % list_count_ * list_blocks_, list_blocks_);
    };
    for (uint64_t number = 0; number < list_count_; ++number) {
      insert(list(number));
      if (map) {
        for (const BlockKey& key : list(number)) map->insert(key, 0);
      }
    }
    Pairs inserts;
    Pairs evictions;
    const double scale = kNanosecondsPerSecond / list_blocks_;
    const auto lists_to_run = std::max(options_.runs, std::min(kListsMax, list_count_));
    for (uint64_t number = 0; number < lists_to_run && !context_.stopped(); ++number) {
      const auto keys = list(number);  // the oldest, and the same again as new ones
      evictions.measured.push_back(scale * seconds_of(context_.clock, [&] { evict(keys.size()); }));
      inserts.measured.push_back(scale * seconds_of(context_.clock, [&] { insert(keys); }));
      if (!map) continue;
      evictions.limit.push_back(scale * seconds_of(context_.clock, [&] {
                                  for (const BlockKey& key : keys) map->erase(key);
                                }));
      inserts.limit.push_back(scale * seconds_of(context_.clock, [&] {
                                for (const BlockKey& key : keys) map->insert(key, 0);
                              }));
    }
    const auto add = [&](const char* what, const Pairs& pairs) {
      figures_.push_back(map ? paired_figure(name(what), "ns/block", pairs, "")
                             : plain_figure(name(what), "ns/block", pairs.measured, ""));
      if (map) {
        figures_.back().conditions.emplace_back(
            "limit_is", "absl::flat_hash_map, without places, parents and policy");
      }
      figures_.back().conditions.emplace_back("policy", "lru");
    };
    add("insert", inserts);
    add("evict", evictions);
    return {};
  }

  const BenchOptions& options_;
  const BenchContext& context_;
  const uint32_t block_count_;
  const uint32_t list_blocks_;
  const uint32_t list_count_;
  const std::vector<BlockKey> keys_;
  const std::vector<BlockKey> absent_;
  std::vector<BlockKey> request_;
  BenchFigures figures_;
};

}  // namespace

Status check_bench_index(const BenchOptions& options, const BenchContext& context) {
  return context.check_blocks_fit("index_blocks", options.index_blocks, kBytesPerBlock);
}

Result<BenchFigures> bench_index(const BenchOptions& options, const BenchContext& context) {
  if (!make_bench_hash_map(1) && context.note) {
    context.note("index: built without libabsl-dev, so there is no hash map to compare with");
  }
  std::vector<uint32_t> sizes{kSmallIndexBlocks, BenchOptions{}.index_blocks, options.index_blocks};
  std::erase_if(sizes, [&](uint32_t size) { return size > options.index_blocks; });
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  BenchFigures all;
  for (const uint32_t size : sizes) {
    if (context.stopped()) break;
    TIERCEL_TRY_ASSIGN(BenchFigures figures, IndexBench(options, context, size).run());
    all.insert(all.end(), figures.begin(), figures.end());
  }
  return all;
}

}  // namespace tiercel
