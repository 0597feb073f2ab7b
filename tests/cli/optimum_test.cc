// SPDX-License-Identifier: Apache-2.0
#include "cli/optimum.h"

#include <algorithm>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "base/random.h"
#include "cli/trace_reader.h"
#include "support/paths.h"

namespace tiercel {
namespace {

using Path = std::vector<uint64_t>;  // an id and all before it
using Requests = std::vector<Path>;

std::vector<Path> blocks_of(const Path& request) {
  std::vector<Path> blocks;
  for (auto end = request.begin(); end != request.end();)
    blocks.emplace_back(request.begin(), ++end);
  return blocks;
}

uint64_t optimum_of(const Requests& requests, uint64_t capacity) {
  OfflineOptimum optimum;
  for (const Path& request : requests) optimum.add(request);
  return optimum.hits(capacity);
}

// The rule word by word.
uint64_t reference_hits(const Requests& requests, size_t capacity) {
  std::set<Path> resident;
  uint64_t hits = 0;
  for (size_t now = 0; now < requests.size(); ++now) {
    const std::vector<Path> blocks = blocks_of(requests[now]);
    for (const Path& block : blocks) {
      if (!resident.contains(block)) break;
      ++hits;
    }
    resident.insert(blocks.begin(), blocks.end());
    while (resident.size() > capacity) {
      std::pair<size_t, size_t> farthest{0, 0};
      const Path* victim = nullptr;
      for (const Path& block : resident) {
        const bool is_continued = std::any_of(resident.begin(), resident.end(), [&](const Path& b) {
          return b.size() == block.size() + 1 && std::equal(block.begin(), block.end(), b.begin());
        });
        if (is_continued) continue;
        size_t next = now + 1;
        while (next < requests.size() &&
               (requests[next].size() < block.size() ||
                !std::equal(block.begin(), block.end(), requests[next].begin()))) {
          ++next;
        }
        const std::pair<size_t, size_t> key{next, block.size()};
        if (victim == nullptr || key > farthest) {
          farthest = key;
          victim = &block;
        }
      }
      resident.erase(Path(*victim));
    }
  }
  return hits;
}

// The most that any choice of prefix-closed content can hit, by trying all of them.
uint64_t best_hits(const Requests& requests, size_t capacity) {
  std::map<std::set<Path>, uint64_t> best{{{}, 0}};
  for (const Path& request : requests) {
    const std::vector<Path> blocks = blocks_of(request);
    std::map<std::set<Path>, uint64_t> next;
    for (const auto& [content, hits_before] : best) {
      uint64_t hits = hits_before;
      for (const Path& block : blocks) {
        if (!content.contains(block)) break;
        ++hits;
      }
      std::set<Path> all = content;
      all.insert(blocks.begin(), blocks.end());
      const std::vector<Path> list(all.begin(), all.end());
      for (uint32_t choice = 0; choice < (1u << list.size()); ++choice) {
        if (static_cast<size_t>(__builtin_popcount(choice)) > capacity) continue;
        std::set<Path> kept;
        for (size_t i = 0; i < list.size(); ++i) {
          if ((choice >> i) & 1u) kept.insert(list[i]);
        }
        const bool closed = std::all_of(kept.begin(), kept.end(), [&](const Path& block) {
          return block.size() == 1 || kept.contains(Path(block.begin(), block.end() - 1));
        });
        if (!closed) continue;
        uint64_t& entry = next[kept];
        entry = std::max(entry, hits);
      }
    }
    best = std::move(next);
  }
  uint64_t most = 0;
  for (const auto& [content, hits] : best) most = std::max(most, hits);
  return most;
}

Requests random_requests(Random& random, size_t count, size_t length_max, uint64_t id_count) {
  Requests requests(count);
  for (Path& request : requests) {
    request.resize(random.below(length_max + 1));
    for (uint64_t& id : request) id = random.below(id_count);
  }
  return requests;
}

TEST(OfflineOptimum, KeepsWhatIsUsedSoonest) {
  EXPECT_EQ(optimum_of({{1}, {2}, {3}, {2}, {1}}, 2), 2u);
  EXPECT_EQ(optimum_of({{1}, {2}, {3}, {2}, {1}}, 1), 1u);
  EXPECT_EQ(optimum_of({{1}, {2}, {3}, {2}, {1}}, 0), 0u);
  EXPECT_EQ(optimum_of({}, 10), 0u);
}

TEST(OfflineOptimum, ABlockIsItsIdAndAllBeforeIt) {
  EXPECT_EQ(optimum_of({{1, 2}, {3, 2}}, 10), 0u);
  EXPECT_EQ(optimum_of({{1, 2}, {1, 3}, {1, 2, 4}}, 10), 3u);
}

TEST(OfflineOptimum, EqualsTheRuleWordByWord) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const Requests requests = random_requests(random, random.between(1, 25), 6, 3);
    for (const size_t capacity : {0u, 1u, 2u, 3u, 5u, 8u, 13u}) {
      ASSERT_EQ(optimum_of(requests, capacity), reference_hits(requests, capacity))
          << "seed " << seed << ", capacity " << capacity;
    }
  }
}

TEST(OfflineOptimum, NoChoiceOfContentHitsMoreOnTinyTraces) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    const Requests requests = random_requests(random, 6, 3, 2);
    for (const size_t capacity : {1u, 2u, 3u, 4u}) {
      ASSERT_EQ(optimum_of(requests, capacity), best_hits(requests, capacity))
          << "seed " << seed << ", capacity " << capacity;
    }
  }
}

TEST(OfflineOptimum, OfTheConversationTraceIsWhatIsKnown) {
  const auto trace = read_trace(testing::source_path("data/conversation_trace.jsonl"));
  ASSERT_TRUE(trace) << trace.error().message();
  OfflineOptimum optimum;
  for (const TraceRequest& request : trace->requests) optimum.add(trace->ids_of(request));
  const auto percent = [&](uint64_t capacity) {
    return 100.0 * static_cast<double>(optimum.hits(capacity)) /
           static_cast<double>(trace->ids.size());
  };
  EXPECT_NEAR(percent(1000), 19.1, 0.1);
  EXPECT_NEAR(percent(3000), 29.5, 0.1);
  EXPECT_NEAR(percent(10000), 36.6, 0.1);
  EXPECT_NEAR(percent(30000), 36.6, 0.1);
}

}  // namespace
}  // namespace tiercel
