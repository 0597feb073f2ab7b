// SPDX-License-Identifier: Apache-2.0
#include "tiny_llm/attention.h"

#include "examples/tiny_llm/tiny_fixture.h"

namespace tiercel::tiny {
namespace {

std::vector<float> random_row(size_t elements, Random& random) {
  std::vector<float> row(elements);
  for (float& value : row) value = static_cast<float>(random.real() * 2 - 1);
  return row;
}

double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

TEST(RotateTest, PositionZeroChangesNothing) {
  Random random(1);
  std::vector<float> heads = random_row(16, random);
  const std::vector<float> before = heads;
  rotate(heads, 8, 0, 10000);
  EXPECT_EQ(heads, before);
}

TEST(RotateTest, TheFirstPairTurnsByThePositionAndTheOthersSlower) {
  std::vector<float> head{1, 1, 0, 0};
  rotate(head, 4, 3, 100);
  EXPECT_NEAR(head[0], std::cos(3.0), 1e-6);
  EXPECT_NEAR(head[2], std::sin(3.0), 1e-6);
  EXPECT_NEAR(head[1], std::cos(0.3), 1e-6);
  EXPECT_NEAR(head[3], std::sin(0.3), 1e-6);
}

TEST(RotateTest, AProductOfTwoHeadsDependsOnTheirDistanceOnly) {
  Random random(2);
  const std::vector<float> query = random_row(8, random), key = random_row(8, random);
  const auto product = [&](uint64_t query_position, uint64_t key_position) {
    std::vector<float> a = query, b = key;
    rotate(a, 8, query_position, 10000);
    rotate(b, 8, key_position, 10000);
    return dot(a, b);
  };
  EXPECT_NEAR(product(17, 5), product(112, 100), 1e-5);
  EXPECT_NEAR(product(5, 5), dot(query, key), 1e-5);
  EXPECT_GT(std::abs(product(17, 5) - product(17, 6)), 1e-3) << "and it does depend on it";
}

// Attention in double over rows that lie one behind the other, as a text book has it.
std::vector<double> naive_attention(const TinyConfig& config, std::span<const float> query,
                                    const std::vector<std::vector<float>>& keys,
                                    const std::vector<std::vector<float>>& values) {
  std::vector<double> out(query.size());
  for (uint32_t head = 0; head < config.heads; ++head) {
    const size_t kv_offset = size_t{head / (config.heads / config.kv_heads)} * config.head_dim;
    const auto head_query = query.subspan(size_t{head} * config.head_dim, config.head_dim);
    std::vector<double> weights;
    double sum = 0;
    for (const auto& key : keys) {
      weights.push_back(
          std::exp(dot(head_query, std::span(key).subspan(kv_offset, config.head_dim)) /
                   std::sqrt(config.head_dim)));
      sum += weights.back();
    }
    for (size_t position = 0; position < values.size(); ++position) {
      for (uint32_t i = 0; i < config.head_dim; ++i) {
        out[size_t{head} * config.head_dim + i] +=
            weights[position] / sum * double{values[position][kv_offset + i]};
      }
    }
  }
  return out;
}

// (query heads, KV heads): one for each, two or four that share one.
class AttentionTest : public ::testing::TestWithParam<std::pair<uint32_t, uint32_t>> {};

TEST_P(AttentionTest, AgreesWithAReferenceWithoutPaging) {
  TinyConfig config;
  config.heads = GetParam().first;
  config.kv_heads = GetParam().second;
  RankKv kv = *RankKv::create(config, 5);
  const auto table = scattered_table(5);
  Random random(3);
  std::vector<std::vector<float>> keys, values;
  for (uint64_t position = 0; position < 5 * config.block_tokens; ++position) {
    keys.push_back(random_row(size_t{config.kv_heads} * config.head_dim, random));
    values.push_back(random_row(size_t{config.kv_heads} * config.head_dim, random));
    const KvPlace place = place_of(table, config.block_tokens, 1, position);
    kv.write(KvPart::kKey, place, keys.back());
    kv.write(KvPart::kValue, place, values.back());
    const std::vector<float> query = random_row(size_t{config.heads} * config.head_dim, random);
    std::vector<float> out(query.size());
    attend(config, kv, table, 1, position, query, out);
    const std::vector<double> expected = naive_attention(config, query, keys, values);
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_NEAR(double{out[i]}, expected[i], 1e-5) << "position " << position << ", " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Heads, AttentionTest,
                         ::testing::Values(std::pair(4u, 4u), std::pair(4u, 2u),
                                           std::pair(4u, 1u)));

TEST(AttentionOfBlocksTest, BlocksSwappedInTheTableCanLeaveTheOutputNearlyUnchanged) {
  // Why the check compares bytes too: keys carry their positions, so a whole block in another place
  // is summed in another order and nothing more.
  TinyConfig config;
  RankKv kv = *RankKv::create(config, 3);
  Random random(4);
  std::vector<DeviceBlockId> table{DeviceBlockId(0), DeviceBlockId(1), DeviceBlockId(2)};
  for (uint64_t position = 0; position < 3 * config.block_tokens; ++position) {
    const KvPlace place = place_of(table, config.block_tokens, 0, position);
    kv.write(KvPart::kKey, place, random_row(config.kv_heads * config.head_dim, random));
    kv.write(KvPart::kValue, place, random_row(config.kv_heads * config.head_dim, random));
  }
  const auto query = random_row(config.heads * config.head_dim, random);
  std::vector<float> right(query.size()), swapped(query.size());
  attend(config, kv, table, 0, 3 * config.block_tokens - 1, query, right);
  std::swap(table[0], table[1]);
  attend(config, kv, table, 0, 3 * config.block_tokens - 1, query, swapped);
  for (size_t i = 0; i < right.size(); ++i) EXPECT_NEAR(right[i], swapped[i], 1e-6);
}

}  // namespace
}  // namespace tiercel::tiny
