// SPDX-License-Identifier: Apache-2.0
#include "tiny_llm/tiny_model.h"

#include <bit>

#include "examples/tiny_llm/tiny_fixture.h"

namespace tiercel::tiny {
namespace {

constexpr uint64_t kSeed = 7;
constexpr uint32_t kBlocks = 6;

struct Case {
  KvType kv_type;
  uint32_t rank_count;
  uint32_t window_layers = 0;
};

class TinyModelTest : public ::testing::TestWithParam<Case> {
 protected:
  TinyModelTest() {
    config_.kv_type = GetParam().kv_type;
    config_.rank_count = GetParam().rank_count;
    config_.window_layers = GetParam().window_layers;
    model_ = *TinyModel::create(config_, kSeed);
    tokens_ = random_tokens(config_, 45, 11);  // the last of 6 blocks is not full
    whole_ranks_ = make_ranks(config_, kBlocks);
    whole_ = run_chunks(*model_, whole_ranks_, table_, tokens_, {45}).front();
  }

  void expect_equal_kv(const std::vector<RankKv>& ranks,
                       const std::vector<DeviceBlockId>& table) const {
    for (uint32_t rank = 0; rank < config_.rank_count; ++rank) {
      EXPECT_EQ(all_bytes(ranks[rank], config_, table),
                all_bytes(whole_ranks_[rank], config_, table_));
    }
  }

  TinyConfig config_;
  std::unique_ptr<TinyModel> model_;
  std::vector<TokenId> tokens_;
  const std::vector<DeviceBlockId> table_ = scattered_table(kBlocks);
  std::vector<RankKv> whole_ranks_;
  std::vector<float> whole_;  // logits after a prefill in one piece
};

TEST_P(TinyModelTest, ChunkedPrefillGivesTheBitsOfWholePrefill) {
  for (const std::vector<size_t>& sizes :
       {std::vector<size_t>{16, 16, 13}, std::vector<size_t>{1, 7, 8, 9, 20},
        std::vector<size_t>{44, 1}}) {
    auto ranks = make_ranks(config_, kBlocks);
    EXPECT_EQ(run_chunks(*model_, ranks, table_, tokens_, sizes).back(), whole_);
    expect_equal_kv(ranks, table_);
  }
}

TEST_P(TinyModelTest, DecodeGivesTheBitsOfPrefill) {
  auto ranks = make_ranks(config_, kBlocks);
  const std::vector<size_t> one_by_one(tokens_.size(), 1);
  const auto all = run_chunks(*model_, ranks, table_, tokens_, one_by_one);
  EXPECT_EQ(all.back(), whole_);
  expect_equal_kv(ranks, table_);
}

TEST_P(TinyModelTest, OtherBlocksAndOtherRequestsInTheBatchChangeNothing) {
  auto ranks = make_ranks(config_, 2 * kBlocks);
  const auto mine = scattered_table(kBlocks, kBlocks);
  const auto theirs = scattered_table(kBlocks);
  const auto others = random_tokens(config_, 45, 12);
  std::vector<float> logits(2 * size_t{config_.vocabulary});
  // Two steps, the other request's chunk in front of ours in the first one and behind it later.
  const std::span<const TokenId> a(tokens_), b(others);
  const TinyChunk first[] = {{b.first(30), 0, {theirs, theirs}, true},
                             {a.first(20), 0, {mine, mine}, false}};
  model_->forward(ranks, first, logits);
  const TinyChunk second[] = {{a.subspan(20), 20, {mine, mine}, true},
                              {b.subspan(30), 30, {theirs, theirs}, true}};
  model_->forward(ranks, second, logits);
  EXPECT_EQ(std::vector(logits.begin(), logits.begin() + config_.vocabulary), whole_);
  expect_equal_kv(ranks, mine);
}

TEST_P(TinyModelTest, KvThatWasCopiedServesAsIfItHadBeenComputed) {
  auto ranks = make_ranks(config_, 2 * kBlocks);
  const auto from = scattered_table(kBlocks);
  const auto to = scattered_table(kBlocks, kBlocks);
  run_chunks(*model_, ranks, from, tokens_, {45});
  for (RankKv& rank : ranks) {
    for (uint32_t layer = 0; layer < config_.layers; ++layer) {
      for (const KvPart part : {KvPart::kKey, KvPart::kValue}) {
        for (uint32_t block = 0; block < 5; ++block) {
          const auto source = rank.block_bytes(part, layer, from[block]);
          std::copy(source.begin(), source.end(), rank.block_bytes(part, layer, to[block]).begin());
        }
      }
    }
  }
  std::vector<float> logits(config_.vocabulary);
  const TinyChunk rest{std::span(tokens_).subspan(40), 40, {to, to}, true};
  model_->forward(ranks, std::span(&rest, 1), logits);
  EXPECT_EQ(logits, whole_);
}

TEST_P(TinyModelTest, AByteOfTheKvMatters) {
  auto ranks = make_ranks(config_, kBlocks);
  run_chunks(*model_, ranks, table_, std::span(tokens_).first(44), {44});
  // The second byte from above: of a bf16 and of a float it has bits of the mantissa.
  const auto bytes = ranks.back().block_bytes(KvPart::kValue, 0, table_[1]);
  const size_t item = config_.kv_type == KvType::kFp32 ? 4 : 2;
  bytes[item - 2] ^= std::byte{0x40};
  std::vector<float> logits(config_.vocabulary);
  const TinyChunk rest{std::span(tokens_).subspan(44), 44, {table_, table_}, true};
  model_->forward(ranks, std::span(&rest, 1), logits);
  EXPECT_NE(logits, whole_);
}

INSTANTIATE_TEST_SUITE_P(KvAndRanks, TinyModelTest,
                         ::testing::Values(Case{KvType::kFp32, 1}, Case{KvType::kFp32, 2},
                                           Case{KvType::kBf16, 1}, Case{KvType::kBf16, 2},
                                           Case{KvType::kBf16, 2, 1}));

KvPlace place_of_first(std::span<const DeviceBlockId> table) { return {0, table[0], 3}; }

// The whole decoder once more: layer by layer over all positions, in double, without paging, ranks
// or shared code.
class NaiveDecoder {
 public:
  using Row = std::vector<double>;
  using Rows = std::vector<Row>;

  NaiveDecoder(const TinyConfig& config, uint64_t seed)
      : config_(config), weights_(make_weights(config, seed)) {}

  Row logits(const std::vector<TokenId>& tokens) const {
    Rows hidden;
    for (const TokenId token : tokens) {
      Row row(config_.hidden);
      for (size_t i = 0; i < row.size(); ++i) {
        row[i] = double{weights_.embedding[token * config_.hidden + i]};
      }
      hidden.push_back(row);
    }
    for (size_t layer = 0; layer < weights_.layers.size(); ++layer) {
      const bool has_window = layer + config_.window_layers >= config_.layers;
      run_layer(weights_.layers[layer], has_window ? config_.window_tokens : tokens.size(),
                &hidden);
    }
    return product(weights_.head, norm(hidden.back(), weights_.final_norm));
  }

 private:
  static Row norm(const Row& row, const std::vector<float>& weights) {
    double squares = 0;
    for (const double value : row) squares += value * value;
    Row result(row.size());
    for (size_t i = 0; i < row.size(); ++i) {
      result[i] =
          row[i] / std::sqrt(squares / static_cast<double>(row.size()) + 1e-5) * double{weights[i]};
    }
    return result;
  }

  static Row product(const std::vector<float>& matrix, const Row& row) {
    Row result(matrix.size() / row.size());
    for (size_t i = 0; i < matrix.size(); ++i) {
      result[i / row.size()] += double{matrix[i]} * row[i % row.size()];
    }
    return result;
  }

  Row turned(Row row, double position) const {
    const uint32_t half = config_.head_dim / 2;
    for (size_t head = 0; head < row.size(); head += config_.head_dim) {
      for (uint32_t i = 0; i < half; ++i) {
        const double angle =
            position / std::pow(double{config_.rope_theta}, 2.0 * i / config_.head_dim);
        const double a = row[head + i], b = row[head + half + i];
        row[head + i] = a * std::cos(angle) - b * std::sin(angle);
        row[head + half + i] = a * std::sin(angle) + b * std::cos(angle);
      }
    }
    return row;
  }

  void run_layer(const LayerWeights& layer, size_t window, Rows* hidden) const {
    Rows keys, values;
    for (size_t position = 0; position < hidden->size(); ++position) {
      Row& row = (*hidden)[position];
      const Row input = norm(row, layer.attention_norm);
      const Row query = turned(product(layer.query, input), static_cast<double>(position));
      keys.push_back(turned(product(layer.key, input), static_cast<double>(position)));
      values.push_back(product(layer.value, input));
      const Row attended = product(layer.output, attention(query, keys, values, window));
      for (size_t i = 0; i < row.size(); ++i) row[i] += attended[i];
      const Row mlp_input = norm(row, layer.mlp_norm);
      Row gate = product(layer.gate, mlp_input);
      const Row up = product(layer.up, mlp_input);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
      const Row down = product(layer.down, gate);
      for (size_t i = 0; i < row.size(); ++i) row[i] += down[i];
    }
  }

  Row attention(const Row& query, const Rows& keys, const Rows& values, size_t window) const {
    Row out(query.size());
    for (size_t element = 0; element < query.size(); element += config_.head_dim) {
      const size_t head = element / config_.head_dim;
      const size_t kv = head / (config_.heads / config_.kv_heads) * config_.head_dim;
      double sum = 0;
      for (size_t other = 0; other < keys.size(); ++other) {
        if (keys.size() - other > window) continue;
        double score = 0;
        for (uint32_t i = 0; i < config_.head_dim; ++i) {
          score += query[element + i] * keys[other][kv + i];
        }
        const double weight = std::exp(score / std::sqrt(config_.head_dim));
        sum += weight;
        for (uint32_t i = 0; i < config_.head_dim; ++i) {
          out[element + i] += weight * values[other][kv + i];
        }
      }
      for (uint32_t i = 0; i < config_.head_dim; ++i) out[element + i] /= sum;
    }
    return out;
  }

  TinyConfig config_;
  TinyWeights weights_;
};

TEST(TinyModelReferenceTest, AgreesWithADecoderWrittenInAnotherWay) {
  for (const auto& [heads, kv_heads, ranks, window_layers] :
       {std::tuple{4u, 2u, 1u, 0u}, std::tuple{4u, 2u, 2u, 2u}, std::tuple{4u, 4u, 4u, 0u},
        std::tuple{4u, 1u, 1u, 1u}}) {
    TinyConfig config;
    config.heads = heads;
    config.kv_heads = kv_heads;
    config.rank_count = ranks;
    config.layers = 3;
    config.window_layers = window_layers;
    const auto model = *TinyModel::create(config, kSeed);
    auto kv = make_ranks(config, kBlocks);
    const auto tokens = random_tokens(config, 41, 13);
    const auto logits = run_chunks(*model, kv, scattered_table(kBlocks), tokens, {41}).front();
    const auto expected = NaiveDecoder(config, kSeed).logits(tokens);
    for (size_t i = 0; i < logits.size(); ++i) {
      ASSERT_NEAR(double{logits[i]}, expected[i], 2e-4) << heads << " heads, logit " << i;
    }
  }
}

TEST(TinyModelReferenceTest, RanksDifferInBitsOnlyAndKeepTheirOwnHeads) {
  TinyConfig one, two;
  two.rank_count = 2;
  const auto tokens = random_tokens(one, 20, 14);
  auto one_kv = make_ranks(one, kBlocks), two_kv = make_ranks(two, kBlocks);
  const auto table = scattered_table(kBlocks);
  const auto a = run_chunks(**TinyModel::create(one, kSeed), one_kv, table, tokens, {20}).front();
  const auto b = run_chunks(**TinyModel::create(two, kSeed), two_kv, table, tokens, {20}).front();
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-4f);
  EXPECT_EQ(sample_greedily(a), sample_greedily(b));
  // In the first layer nothing has been summed over ranks yet: the same bits, each on its rank.
  std::vector<float> whole(one.head_dim), part(one.head_dim);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    one_kv[0].read(KvPart::kKey, place_of_first(table), rank, whole);
    two_kv[rank].read(KvPart::kKey, place_of_first(table), 0, part);
    EXPECT_EQ(whole, part);
  }
}

TEST(TinyWeightsTest, TheSeedDecidesThemOnEveryPlatform) {
  // Bits worked out from the header's words by another program; they must never change.
  const TinyWeights weights = make_weights(TinyConfig{}, 1);
  EXPECT_EQ(std::bit_cast<uint32_t>(weights.embedding[0]), 0xbfa25748u);
  EXPECT_EQ(std::bit_cast<uint32_t>(weights.embedding[1]), 0xbfa1380du);
  EXPECT_EQ(std::bit_cast<uint32_t>(weights.layers[0].attention_norm[0]), 0x3f86092cu);
  EXPECT_EQ(std::bit_cast<uint32_t>(weights.head.back()), 0xbe1c2027u);
  EXPECT_NE(make_weights(TinyConfig{}, 2).embedding, weights.embedding);
  TinyConfig other;
  other.rank_count = 2;
  other.kv_type = KvType::kBf16;
  EXPECT_EQ(make_weights(other, 1).layers[1].down, weights.layers[1].down);
}

TEST(SampleTest, TakesTheFirstOfTheLargest) {
  EXPECT_EQ(sample_greedily(std::vector<float>{-3, 2, 7, 7, 1}), 2u);
}

}  // namespace
}  // namespace tiercel::tiny
