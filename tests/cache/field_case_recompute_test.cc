// SPDX-License-Identifier: Apache-2.0
//
// Cases from the field about what has to be computed again: a toy model whose every token depends
// on every byte of KV before it, so that one wrong block gives another answer.
#include "cache/field_case_fixture.h"

namespace tiercel {
namespace {

using namespace std::chrono_literals;

constexpr uint32_t kBlockTokens = 4;
constexpr size_t kTokenBytes = kPartBytes / kBlockTokens;

// Reads and writes KV on a device through a table of blocks.
class ToyModel {
 public:
  explicit ToyModel(testing::TestRank& rank) : rank_(rank) {}

  // KV of token `position`, from all KV before it.
  void compute(const std::vector<uint32_t>& table, uint32_t position, TokenId token) {
    testing::fill_random(slot(table, position), attend(table, position) ^ token);
    ++work;
  }
  TokenId sample(const std::vector<uint32_t>& table, uint32_t tokens) {
    return static_cast<TokenId>(attend(table, tokens) % 50'000);
  }

  uint64_t work = 0;  // tokens computed

 private:
  std::span<std::byte> slot(const std::vector<uint32_t>& table, uint32_t position) {
    return rank_.device_block(GroupId(0), table[position / kBlockTokens])
        .subspan(position % kBlockTokens * kTokenBytes, kTokenBytes);
  }
  uint64_t attend(const std::vector<uint32_t>& table, uint32_t tokens) {
    uint64_t state = 0xcbf29ce484222325u;
    for (uint32_t position = 0; position < tokens; ++position) {
      for (const std::byte byte : slot(table, position)) {
        state = (state ^ static_cast<uint64_t>(byte)) * 0x100000001b3u;
      }
    }
    return state ^ state >> 29;
  }

  testing::TestRank& rank_;
};

// One request of the toy engine.
struct ToyRequest {
  RequestId id;
  std::vector<TokenId> tokens;  // the prompt, then what was sampled
  std::vector<uint32_t> table;  // device blocks
  uint32_t position = 0;        // tokens with KV, or promised by a load
  bool loading = false;
};

constexpr uint32_t kOutputTokens = 6;

class FieldCaseRecompute : public FieldCase {
 protected:
  static std::vector<TokenId> prompt(uint32_t length, uint32_t salt = 0) {
    std::vector<TokenId> tokens(length);
    for (uint32_t i = 0; i < length; ++i) tokens[i] = salt * 1000 + i * i % 97;
    return tokens;
  }
  static ToyRequest request(uint64_t id, const std::vector<TokenId>& tokens, uint32_t first) {
    ToyRequest request{RequestId(id), tokens, {}, 0, false};
    for (uint32_t i = 0; i <= (tokens.size() + kOutputTokens) / kBlockTokens; ++i) {
      request.table.push_back(first + i);
    }
    return request;
  }
  Sequence sequence_of(const std::vector<TokenId>& tokens) const {
    Sequence sequence(make_root(*make_namespace(config_.spec), Scope{}), kBlockTokens);
    sequence.append(tokens);
    return sequence;
  }

  // Computes what is missing of the prompt and some tokens more; what it answered.
  std::vector<TokenId> run(ToyModel& model, ToyRequest& request) {
    const size_t prompt_tokens = request.tokens.size();
    while (request.tokens.size() < prompt_tokens + kOutputTokens) {
      for (; request.position < request.tokens.size(); ++request.position) {
        model.compute(request.table, request.position, request.tokens[request.position]);
      }
      request.tokens.push_back(model.sample(request.table, request.position));
    }
    return {request.tokens.begin() + static_cast<ptrdiff_t>(prompt_tokens), request.tokens.end()};
  }
  std::vector<TokenId> run_without_cache(const std::vector<TokenId>& tokens) {
    ToyModel model(*ranks[0]);
    ToyRequest alone = request(0, tokens, 100);
    return run(model, alone);
  }

  void save(const ToyRequest& request) {
    const Sequence sequence = sequence_of(request.tokens);
    const auto full = static_cast<uint32_t>(sequence.keys().size());
    ASSERT_TRUE(cache->save(request.id, sequence.keys(), 0, device(full, request.table[0])));
    ASSERT_TRUE(cache->commit(request.id, request.position));
    settle_bytes();
  }
  void finish(const ToyRequest& request) {
    ASSERT_TRUE(cache->finish(request.id));
    settle_bytes();
  }

  void begin_load(ToyRequest& request, TimePoint deadline) {
    const Sequence sequence = sequence_of(request.tokens);
    const auto keys = sequence.loadable_keys();
    const auto first = request.position / kBlockTokens;
    const auto offered = static_cast<uint32_t>(keys.size()) - first;
    const auto started =
        cache->load(request.id, keys, first, device(offered, request.table[first]), deadline);
    ASSERT_TRUE(started);
    request.loading = *started > 0;
    request.position += *started * kBlockTokens;  // the promise, on which the scheduler goes on
  }
  // What a request that was promised too much does: it goes back, into other device blocks where a
  // late load may still write.
  void end_load(ToyRequest& request, const CacheEvent& event, uint32_t spare) {
    ASSERT_TRUE(request.loading);
    request.loading = false;
    request.position = event.blocks * kBlockTokens;
    if (!event.device_busy) return;
    for (uint32_t i = event.blocks; i < request.table.size(); ++i) request.table[i] = spare + i;
  }

  enum class Fault { kRefused, kCorrupt, kLate };

  // Two requests are promised the same five blocks; one block cannot be had.
  void fail_a_promised_load(uint32_t failing, Fault fault, bool overlapped) {
    open_bytes(field_config(32), 256);
    const auto tokens = prompt(23);  // five blocks and three tokens
    const auto expected = run_without_cache(tokens);
    ToyModel model(*ranks[0]);
    ToyRequest writer = request(1, tokens, 0);
    ASSERT_EQ(run(model, writer), expected);
    writer.tokens.resize(23);
    save(writer);
    finish(writer);

    ToyRequest pair[] = {request(2, tokens, 16), request(3, tokens, 32)};
    for (ToyRequest& one : pair) {
      ASSERT_NO_FATAL_FAILURE(begin_load(one, in(50ms)));
      ASSERT_EQ(one.position, 20u);
    }
    ToyRequest other = request(4, prompt(9, 1), 48);
    const auto answer_of_other = [&] { return run(model, other); };
    std::vector<TokenId> other_answer;
    if (overlapped) other_answer = answer_of_other();  // the next step runs beside the loads
    const BlockKey bad = sequence_of(tokens).keys()[failing];
    bool damaged = false;
    for (size_t i = 0; i < plane->open.size();) {
      const auto [op, rank] = plane->open[i];
      if (op.key != bad) {
        carry_out(i);
      } else if (fault == Fault::kLate) {
        ++i;
      } else if (fault == Fault::kRefused) {
        plane->complete(i, Code::kUnavailable);
      } else {
        if (!damaged) ranks[0]->slot_payload(op.slot, GroupId(0))[7] ^= std::byte{1};
        damaged = true;
        carry_out(i);
      }
    }
    if (fault == Fault::kLate) clock.advance(50ms);
    const auto events = poll();
    ASSERT_EQ(events.size(), 2u);
    if (!overlapped) other_answer = answer_of_other();
    EXPECT_EQ(other_answer, run_without_cache(prompt(9, 1)));
    for (uint32_t i = 0; i < 2; ++i) {
      ASSERT_EQ(events[i].request, pair[i].id);
      ASSERT_EQ(events[i].blocks, failing);
      ASSERT_NO_FATAL_FAILURE(end_load(pair[i], events[i], 160 + 32 * i));
      model.work = 0;
      EXPECT_EQ(run(model, pair[i]), expected);
      EXPECT_EQ(model.work, 23 + kOutputTokens - 1 - failing * kBlockTokens) << "nothing twice";
    }
    settle_bytes();  // the late ones come now
    for (ToyRequest& one : pair) {
      EXPECT_EQ(model.sample(one.table, 23), expected[0]) << "late data came into used blocks";
      finish(one);
    }
    // What the failure took is computed and stored again, and then it is a hit.
    ToyRequest again = request(5, tokens, 64);
    (void)run(model, again);
    again.tokens.resize(23);
    again.position = 23;
    save(again);
    finish(again);
    ToyRequest last = request(6, tokens, 80);
    ASSERT_NO_FATAL_FAILURE(begin_load(last, kNoDeadline));
    ASSERT_EQ(last.position, 20u);
    settle_bytes();
    EXPECT_EQ(run(model, last), expected);
    finish(last);
    EXPECT_EQ(cache->check(true), "");
  }
};

// F33: after a refused load the engine computed again, with another output than without a cache.
TEST_F(FieldCaseRecompute, F33AfterAFailedLoadTheAnswerIsThatWithoutACache) {
  for (const uint32_t failing : {0u, 2u, 4u}) {
    for (const Fault fault : {Fault::kRefused, Fault::kCorrupt, Fault::kLate}) {
      for (const bool overlapped : {false, true}) {
        SCOPED_TRACE(::testing::Message() << "block " << failing << ", fault "
                                          << static_cast<int>(fault) << ", " << overlapped);
        ASSERT_NO_FATAL_FAILURE(fail_a_promised_load(failing, fault, overlapped));
      }
    }
  }
}

// F41: with the whole prompt in the cache nothing was left to compute, and an assertion ended it.
TEST_F(FieldCaseRecompute, F41AFullyCachedPromptLeavesAtLeastOneTokenAndAtMostOneBlock) {
  const struct {
    uint32_t length, matched_blocks;
  } table[] = {{1, 0}, {3, 0}, {4, 0}, {5, 1}, {7, 1}, {8, 1}, {9, 2}};
  open_bytes(field_config(32), 256);
  ToyModel model(*ranks[0]);
  uint64_t id = 1;
  for (const auto& [length, matched_blocks] : table) {
    const auto tokens = prompt(length);
    const auto expected = run_without_cache(tokens);
    ToyRequest writer = request(id++, tokens, 0);
    (void)run(model, writer);
    writer.tokens.resize(length);
    writer.position = length;
    save(writer);
    finish(writer);
    for (uint32_t on_device = 0; on_device <= matched_blocks; ++on_device) {
      SCOPED_TRACE(::testing::Message() << length << " tokens, " << on_device << " on the device");
      const Sequence sequence = sequence_of(tokens);
      EXPECT_EQ(ready({sequence.keys().begin(), sequence.keys().end()}), length / kBlockTokens)
          << "all are stored";
      const Match match = cache->match(sequence.loadable_keys(), on_device);
      EXPECT_EQ(match.ready_blocks, matched_blocks);
      EXPECT_LE(match.ready_blocks * kBlockTokens, length - 1);
      ToyRequest reader = request(id++, tokens, 32);
      for (uint32_t i = 0; i < on_device; ++i) reader.table[i] = i;  // the writer's, shared
      reader.position = on_device * kBlockTokens;
      const uint64_t hits = cache->stats().load_blocks;
      const uint32_t loaded = matched_blocks - on_device;
      ASSERT_NO_FATAL_FAILURE(begin_load(reader, kNoDeadline));
      settle_bytes();
      EXPECT_EQ(cache->stats().load_blocks, hits + loaded);
      EXPECT_EQ(reader.position, matched_blocks * kBlockTokens);
      const uint32_t left = length - reader.position;
      EXPECT_GE(left, 1u);
      EXPECT_LE(left, kBlockTokens);
      model.work = 0;
      EXPECT_EQ(run(model, reader), expected);
      EXPECT_EQ(model.work, left + kOutputTokens - 1);
      finish(reader);
    }
  }
}

}  // namespace
}  // namespace tiercel
