// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tiercel/key.h"

#include "base/random.h"
#include "key/samples.h"

namespace tiercel {
namespace {

using testing::random_tokens;

const RootKey kRoot = testing::digest_of<RootKey>("root");

struct Keys {
  std::vector<BlockKey> full;
  std::optional<BlockKey> partial;
  friend bool operator==(const Keys&, const Keys&) = default;
};

Keys keys_of(const Sequence& sequence) {
  return {{sequence.keys().begin(), sequence.keys().end()}, sequence.partial_key()};
}

// The same keys block by block, straight from the definition.
Keys keys_by_definition(std::span<const TokenId> tokens, uint32_t block_tokens,
                        std::vector<SequenceItem> items) {
  std::stable_sort(items.begin(), items.end(), [](const SequenceItem& a, const SequenceItem& b) {
    return std::tie(a.begin, a.kind, a.content_hash, a.end) <
           std::tie(b.begin, b.kind, b.content_hash, b.end);
  });
  Keys keys;
  BlockKey parent = root_as_parent(kRoot);
  for (uint64_t start = 0; start < tokens.size(); start += block_tokens) {
    const auto block = tokens.subspan(start, std::min<size_t>(block_tokens, tokens.size() - start));
    std::vector<BlockExtra> extras;
    for (const SequenceItem& item : items) {
      if (item.begin < start + block.size() && item.end > start) {
        extras.push_back({item.kind, item.content_hash,
                          static_cast<int64_t>(item.begin) - static_cast<int64_t>(start)});
      }
    }
    if (block.size() == block_tokens) {
      keys.full.push_back(parent = chain_block_key(parent, block, extras));
    } else {
      keys.partial = partial_block_key(parent, block, extras);
    }
  }
  return keys;
}

std::vector<SequenceItem> random_items(Random& random, uint64_t tokens) {
  std::vector<SequenceItem> items(random.below(6));
  for (SequenceItem& item : items) {
    item.kind = random.chance(0.5) ? "image" : "audio";
    item.content_hash = std::string(1, static_cast<char>('a' + random.below(3)));
    item.begin = random.below(tokens + 5);
    item.end = item.begin + random.between(1, random.chance(0.3) ? tokens + 1 : 6);
  }
  return items;
}

TEST(Sequence, KeysFollowTheDefinitionHoweverTokensAndItemsArrive) {
  Random random(8);
  for (int round = 0; round < 1500; ++round) {
    const uint32_t block_tokens = static_cast<uint32_t>(random.between(1, 9));
    const auto tokens = random_tokens(random, random.below(80));
    auto items = random_items(random, tokens.size());
    const Keys expected = keys_by_definition(tokens, block_tokens, items);

    Sequence sequence(kRoot, block_tokens);
    std::span<const TokenId> rest(tokens);
    while (true) {
      const size_t size = random.below(std::min<size_t>(rest.size(), 25) + 1);
      // Items in the order of the vector, but each only when it becomes urgent or by chance.
      std::erase_if(items, [&](const SequenceItem& item) {
        const bool urgent = item.begin < sequence.token_count() + size;
        if (!urgent && random.chance(0.7)) return false;
        const Status status = sequence.add_item(item);
        EXPECT_TRUE(status) << status.error().message();
        return true;
      });
      if (rest.empty()) break;
      sequence.append(rest.first(size));
      rest = rest.subspan(size);
      ASSERT_EQ(sequence.token_count(), tokens.size() - rest.size());
    }
    EXPECT_EQ(keys_of(sequence), expected) << "round " << round;
  }
}

TEST(Sequence, ChainEqualsOneShotKeys) {
  std::vector<TokenId> tokens(48);
  std::iota(tokens.begin(), tokens.end(), 1000);
  Sequence sequence(kRoot, 16);
  sequence.append(tokens);
  BlockKey parent = root_as_parent(kRoot);
  ASSERT_EQ(sequence.keys().size(), 3u);
  for (size_t block = 0; block < 3; ++block) {
    parent = chain_block_key(parent, std::span(tokens).subspan(16 * block, 16));
    EXPECT_EQ(sequence.keys()[block], parent);
  }
}

TEST(Sequence, LoadableKeysLeaveOneTokenToCompute) {
  Sequence sequence(kRoot, 4);
  for (uint64_t count = 0; count <= 20; ++count) {
    EXPECT_EQ(sequence.token_count(), count);
    EXPECT_EQ(sequence.keys().size(), count / 4);
    const size_t expected = count == 0 ? 0 : (count - 1) / 4;
    ASSERT_EQ(sequence.loadable_keys().size(), expected) << count << " tokens";
    EXPECT_EQ(sequence.loadable_keys().data(), sequence.keys().data());
    const TokenId token = 5;
    sequence.append({&token, 1});
  }
}

TEST(Sequence, PartialKeyIsThereOnlyForAnUnfilledTail) {
  Sequence sequence(kRoot, 4);
  EXPECT_FALSE(sequence.partial_key());
  const std::vector<TokenId> tokens = {1, 2, 3, 4};
  sequence.append(std::span(tokens).first(3));
  EXPECT_EQ(sequence.partial_key(),
            partial_block_key(root_as_parent(kRoot), std::span(tokens).first(3)));
  sequence.append(std::span(tokens).last(1));
  EXPECT_FALSE(sequence.partial_key());
}

TEST(Sequence, ItemsThatBeginTogetherMayBeDeclaredInAnyOrder) {
  const std::vector<TokenId> tokens(8, 1);
  std::vector<SequenceItem> items = {
      {"image", "a", 2, 4}, {"image", "b", 2, 6}, {"audio", "c", 2, 3}, {"image", "a", 2, 7}};
  Sequence forward(kRoot, 4);
  for (const SequenceItem& item : items) ASSERT_TRUE(forward.add_item(item));
  forward.append(tokens);
  Sequence backward(kRoot, 4);
  for (auto item = items.rbegin(); item != items.rend(); ++item) {
    ASSERT_TRUE(backward.add_item(*item));
  }
  backward.append(tokens);
  EXPECT_EQ(keys_of(forward), keys_of(backward));
}

TEST(Sequence, ItemDeclaredAtTheBorderSortsAmongThoseDeclaredBefore) {
  const std::vector<TokenId> tokens(12, 1);
  const std::vector<SequenceItem> items = {
      {"image", "z", 1, 9}, {"image", "m", 4, 9}, {"image", "a", 4, 6}};
  Sequence sequence(kRoot, 4);
  ASSERT_TRUE(sequence.add_item(items[0]));
  ASSERT_TRUE(sequence.add_item(items[1]));
  sequence.append(std::span(tokens).first(4));
  ASSERT_TRUE(sequence.add_item(items[2]));  // begins with items[1] and sorts before it
  sequence.append(std::span(tokens).last(8));
  EXPECT_EQ(keys_of(sequence), keys_by_definition(tokens, 4, items));
}

TEST(Sequence, ItemOverAHashedBlockIsRefused) {
  Sequence sequence(kRoot, 4);
  sequence.append(std::vector<TokenId>(6, 1));
  const Status late = sequence.add_item({"image", "hash", 3, 9});
  ASSERT_EQ(late.code(), Code::kInvalid);
  EXPECT_EQ(
      late.error().message(),
      "item begins at token 3, but the blocks of the first 4 tokens have been hashed; declare "
      "items before appending their tokens");
  EXPECT_TRUE(sequence.add_item({"image", "hash", 4, 9}));  // its block is not full yet
}

TEST(Sequence, MalformedItemIsRefusedAndChangesNothing) {
  Sequence sequence(kRoot, 4);
  EXPECT_EQ(sequence.add_item({"image", "hash", 3, 3}).error().message(),
            "item covers tokens 3 to 3; its end must be greater");
  EXPECT_EQ(sequence.add_item({"image", "hash", 3, 2}).code(), Code::kInvalid);
  EXPECT_EQ(sequence.add_item({std::string(256, 'k'), "hash", 0, 1}).error().message(),
            "item kind has 256 bytes; allowed: 0 to 255");
  EXPECT_EQ(sequence.add_item({"image", std::string(65536, 'h'), 0, 1}).error().message(),
            "item content_hash has 65536 bytes; allowed: 0 to 65535");
  const std::vector<TokenId> tokens(4, 1);
  sequence.append(tokens);
  EXPECT_EQ(sequence.keys()[0], chain_block_key(root_as_parent(kRoot), tokens));
}

TEST(Sequence, RestartedIsAsNewWhateverWasInItBefore) {
  Random random(5);
  Sequence used(kRoot, 4);
  for (int turn = 0; turn < 50; ++turn) {
    RootKey root = kRoot;
    root.bytes[0] = std::byte{static_cast<uint8_t>(turn)};
    Sequence fresh(root, 4);
    used.restart(root);
    EXPECT_EQ(used.token_count(), 0u);
    std::vector<TokenId> tokens;
    for (uint64_t i = random.below(40); i > 0; --i) {
      tokens.push_back(static_cast<TokenId>(random.below(9)));
    }
    if (random.chance(0.5)) {
      const uint64_t begin = random.below(40);
      for (Sequence* sequence : {&fresh, &used}) {
        ASSERT_TRUE(sequence->add_item({"image", "hash", begin, begin + 5}));
      }
    }
    for (Sequence* sequence : {&fresh, &used}) sequence->append(tokens);
    EXPECT_TRUE(std::ranges::equal(used.keys(), fresh.keys()));
    EXPECT_EQ(used.partial_key(), fresh.partial_key());
  }
}

TEST(Sequence, LongestItemIsHashedWhole) {
  const std::vector<TokenId> tokens(4, 1);
  std::string hash(65535, 'h');
  Sequence one(kRoot, 4);
  ASSERT_TRUE(one.add_item({std::string(255, 'k'), hash, 0, UINT64_MAX}));
  one.append(tokens);
  hash.back() = 'i';
  Sequence other(kRoot, 4);
  ASSERT_TRUE(other.add_item({std::string(255, 'k'), hash, 0, UINT64_MAX}));
  other.append(tokens);
  EXPECT_NE(one.keys()[0], other.keys()[0]);
}

}  // namespace
}  // namespace tiercel
