// SPDX-License-Identifier: Apache-2.0

#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "tiercel/key.h"

#include "key/samples.h"

namespace tiercel {
namespace {

const BlockKey kEngineHash = testing::digest_of<BlockKey>("engine");

TEST(ForeignKey, EmptyOrIncludedScopeKeepsTheEnginesHash) {
  for (const EngineHash function : {EngineHash::kSha256, EngineHash::kSha256Cbor}) {
    EXPECT_EQ(*foreign_block_key(function, kEngineHash.bytes, {}, false), kEngineHash);
    EXPECT_EQ(*foreign_block_key(function, kEngineHash.bytes, {"a", "", ""}, true), kEngineHash);
  }
}

TEST(ForeignKey, EveryScopeThatIsNotIncludedMakesAnotherKey) {
  std::set<BlockKey> keys = {kEngineHash};
  const std::vector<Scope> scopes = {
      {"a", "", ""}, {"", "a", ""}, {"", "", "a"}, {"aa", "", ""}, {"a", "a", ""}};
  for (const Scope& scope : scopes) {
    keys.insert(*foreign_block_key(EngineHash::kSha256, kEngineHash.bytes, scope, false));
  }
  EXPECT_EQ(keys.size(), 1 + scopes.size());
}

TEST(ForeignKey, WeakHashFunctionIsUnsupportedWhateverTheLength) {
  for (const EngineHash function :
       {EngineHash::kXxh3, EngineHash::kXxh3Cbor, EngineHash::kUnknown, EngineHash{99}}) {
    EXPECT_EQ(foreign_block_key(function, kEngineHash.bytes, {}, false).code(), Code::kUnsupported);
    EXPECT_EQ(foreign_block_key(function, {}, {}, false).code(), Code::kUnsupported);
  }
  EXPECT_EQ(foreign_block_key(EngineHash::kXxh3, kEngineHash.bytes, {}, false).error().message(),
            "the engine's block hash function is xxh3; allowed: sha256, sha256_cbor (else let "
            "Tiercel hash the tokens)");
}

TEST(ForeignKey, HashOfAnotherLengthIsInvalid) {
  const std::vector<std::byte> bytes(64);
  for (size_t size = 0; size <= bytes.size(); ++size) {
    const auto key =
        foreign_block_key(EngineHash::kSha256, std::span(bytes).first(size), {}, false);
    EXPECT_EQ(key.code(), size == 32 ? Code::kOk : Code::kInvalid) << size;
  }
  EXPECT_EQ(foreign_block_key(EngineHash::kSha256, std::span(bytes).first(8), {}, false)
                .error()
                .message(),
            "the engine's block hash has 8 bytes; allowed: 32 (not shortened)");
}

}  // namespace
}  // namespace tiercel
