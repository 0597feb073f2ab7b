// SPDX-License-Identifier: Apache-2.0

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tiercel/key.h"

#include "key/samples.h"

namespace tiercel {
namespace {

using testing::random_spec;
using testing::sample_spec;

std::string error_of(const std::vector<std::byte>& document) {
  const Result<KvSpec> spec = parse_key_document(document);
  if (spec) return "ok";
  EXPECT_EQ(spec.code(), Code::kInvalid);
  return spec.error().message();
}

void put_u32(std::vector<std::byte>& document, size_t offset, uint32_t value) {
  std::memcpy(document.data() + offset, &value, sizeof(value));
}

// Whatever is accepted must be written back byte by byte.
void expect_canonical_or_refused(const std::vector<std::byte>& document) {
  const Result<KvSpec> spec = parse_key_document(document);
  if (!spec) return;
  ASSERT_TRUE(spec->validate());
  EXPECT_EQ(key_document(*spec), document);
}

TEST(KeyDocument, RoundTripsEverySpec) {
  Random random(3);
  for (int round = 0; round < 500; ++round) {
    const KvSpec spec = random_spec(random);
    const Result<KvSpec> parsed = parse_key_document(key_document(spec));
    ASSERT_TRUE(parsed) << parsed.error().to_string();
    EXPECT_EQ(*parsed, spec);
  }
}

TEST(KeyDocument, RoundTripsTheLargestSpec) {
  KvSpec spec = sample_spec();
  for (std::string* text : {&spec.model_id, &spec.weights_revision, &spec.kv_dtype,
                            &spec.kv_scale_scheme, &spec.positional_scheme, &spec.layout_tag}) {
    text->assign(65536, 't');
  }
  spec.block_tokens = 65536;
  spec.groups.resize(kGroupCountMax);
  const Result<KvSpec> parsed = parse_key_document(key_document(spec));
  ASSERT_TRUE(parsed) << parsed.error().to_string();
  EXPECT_EQ(*parsed, spec);
}

TEST(KeyDocument, EveryTruncationIsRefusedAtItsEnd) {
  Random random(4);
  for (int round = 0; round < 50; ++round) {
    const std::vector<std::byte> document = key_document(random_spec(random));
    for (size_t size = 0; size < document.size(); ++size) {
      const std::string error =
          error_of({document.begin(), document.begin() + std::ptrdiff_t(size)});
      EXPECT_NE(error.find("offset " + std::to_string(size) + ": ends inside"), std::string::npos)
          << error;
    }
  }
}

TEST(KeyDocument, EveryFlippedBitIsRefusedOrIsAnotherSpecsDocument) {
  Random random(5);
  for (int round = 0; round < 60; ++round) {
    const KvSpec spec = random_spec(random);
    std::vector<std::byte> document = key_document(spec);
    for (size_t bit = 0; bit < 8 * document.size(); ++bit) {
      const auto mask = static_cast<std::byte>(1u << (bit % 8));
      document[bit / 8] ^= mask;
      expect_canonical_or_refused(document);
      const Result<KvSpec> parsed = parse_key_document(document);
      EXPECT_TRUE(!parsed || *parsed != spec) << "bit " << bit;
      document[bit / 8] ^= mask;
    }
  }
}

TEST(KeyDocument, ArbitraryBytesBehindAValidStartAreSafe) {
  Random random(6);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> document = key_document(random_spec(random));
    const size_t kept = random.below(document.size());
    document.resize(random.between(kept, document.size() + 20));
    for (size_t i = kept; i < document.size(); ++i) {
      document[i] = static_cast<std::byte>(random.chance(0.5) ? 0 : random.below(256));
    }
    expect_canonical_or_refused(document);
  }
}

TEST(KeyDocument, ErrorNamesTheOffsetAndWhatIsAllowed) {
  const std::vector<std::byte> good = key_document(sample_spec());
  const size_t block_tokens_at = good.size() - 24 - 8;
  auto document = good;
  document[2] = std::byte{'X'};
  EXPECT_EQ(error_of(document), "key document, offset 2: not the tag \"TCKD\"");
  document = good;
  put_u32(document, 4, 2);
  EXPECT_EQ(error_of(document), "key document, offset 4: format version is 2; allowed: 1");
  document = good;
  put_u32(document, 8, 0xffffffff);
  EXPECT_EQ(error_of(document),
            "key document, offset 8: model_id has 4294967295 bytes; allowed: 1 to 65536 bytes");
  document = good;
  put_u32(document, block_tokens_at, 0);
  EXPECT_EQ(error_of(document), "key document, offset " + std::to_string(block_tokens_at) +
                                    ": block_tokens is 0; allowed: 1 to 65536");
  document = good;
  put_u32(document, block_tokens_at + 8, 0x102);  // a byte-wide reader would see 2
  EXPECT_NE(error_of(document).find("groups[0].attention is 258"), std::string::npos);
  document = good;
  document.push_back(std::byte{0});
  EXPECT_EQ(error_of(document),
            "key document, offset " + std::to_string(good.size()) + ": 1 bytes too many");
}

TEST(KeyDocument, ByteMovedBetweenNeighbouringTextsMakesAnotherNamespace) {
  KvSpec left = sample_spec();
  KvSpec right = left;
  left.model_id = "ab";
  left.weights_revision = "c";
  right.model_id = "a";
  right.weights_revision = "bc";
  EXPECT_NE(make_namespace(left)->hex(), make_namespace(right)->hex());
}

TEST(KeyDocument, NamespaceOfAnInvalidSpecIsRefused) {
  KvSpec spec = sample_spec();
  spec.block_tokens = 0;
  const Result<Namespace> name_space = make_namespace(spec);
  ASSERT_EQ(name_space.code(), Code::kInvalid);
  EXPECT_EQ(name_space.error().message(), "block_tokens is 0; allowed: 1 to 65536");
}

}  // namespace
}  // namespace tiercel
