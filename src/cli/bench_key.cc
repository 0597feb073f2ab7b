// SPDX-License-Identifier: Apache-2.0
//
// From tokens to block keys, against bare SHA-256 of the same preimages, which lie ready.
#include <cstring>

#include "tiercel/key.h"

#include "base/random.h"
#include "cli/bench.h"
#include "cli/bench_keys.h"
#include "cli/bench_measure.h"
#include "key/domain_tag.h"
#include "key/little_endian.h"
#include "key/sha256.h"

namespace tiercel {
namespace {

constexpr double kMicrosecondsPerSecond = 1e6;

// The preimages of the blocks behind each other, as docs/format.md writes a text block, each with
// room behind it for the padding.
class Preimages {
 public:
  Preimages(std::span<const BlockKey> keys, const BlockKey& root, std::span<const TokenId> tokens,
            uint32_t block_tokens)
      : bytes_(DomainTag::kBytes + sizeof(BlockKey) + 2 * sizeof(uint32_t) +
               size_t{block_tokens} * sizeof(TokenId)),
        buffer_(keys.size() * stride()) {
    for (size_t i = 0; i < keys.size(); ++i) {
      std::byte* out = buffer_.data() + i * stride();
      const BlockKey& parent = i == 0 ? root : keys[i - 1];
      std::memcpy(out, kBlockKeyTag.text().data(), DomainTag::kBytes);
      out += DomainTag::kBytes;
      std::memcpy(out, parent.bytes.data(), sizeof(BlockKey));
      out += sizeof(BlockKey);
      store_little_endian(block_tokens, out);
      out += sizeof(uint32_t);
      std::memcpy(out, tokens.data() + i * block_tokens, size_t{block_tokens} * sizeof(TokenId));
    }
  }

  size_t count() const { return buffer_.size() / stride(); }
  size_t bytes() const { return bytes_; }
  std::span<const std::byte> preimage(size_t i) const {
    return std::span(buffer_).subspan(i * stride(), bytes_);
  }
  std::span<std::byte> with_room(size_t i) {
    return std::span(buffer_).subspan(i * stride(), stride());
  }

 private:
  size_t stride() const { return bytes_ + kSha256PaddingBytesMax; }

  size_t bytes_;
  std::vector<std::byte> buffer_;
};

}  // namespace

Result<BenchFigures> bench_key(const BenchOptions& options, const BenchContext& context) {
  const std::vector<TokenId> tokens = bench_tokens(options.tokens, 1);
  const RootKey root = bench_root();
  Sequence reference(root, options.block_tokens);
  reference.append(tokens);
  Preimages preimages(reference.keys(), root_as_parent(root), tokens, options.block_tokens);
  for (size_t i = 0; i < preimages.count(); ++i) {
    if (sha256(preimages.preimage(i)) != reference.keys()[i].bytes) {
      return Error(Code::kInternal, "key: the ready preimage of block " + std::to_string(i) +
                                        " does not hash to the block's key");
    }
  }

  const auto sequence = [&] {
    return kMicrosecondsPerSecond * seconds_of(context.clock, [&] {
             Sequence fresh(root, options.block_tokens);
             fresh.append(tokens);
             keep(fresh.keys().back());
           });
  };
  const auto library_calls = [&] {
    return kMicrosecondsPerSecond * seconds_of(context.clock, [&] {
             for (size_t i = 0; i < preimages.count(); ++i) keep(sha256(preimages.preimage(i)));
           });
  };
  const auto padded_in_place = [&] {
    return kMicrosecondsPerSecond * seconds_of(context.clock, [&] {
             for (size_t i = 0; i < preimages.count(); ++i) {
               keep(sha256_padded_in_place(preimages.with_room(i), preimages.bytes()));
             }
           });
  };
  // What the chain costs by itself: each preimage gets the digest before it, so none can begin
  // early.
  const auto chained = [&] {
    return kMicrosecondsPerSecond * seconds_of(context.clock, [&] {
             Sha256Digest digest = root_as_parent(root).bytes;
             for (size_t i = 0; i < preimages.count(); ++i) {
               const std::span<std::byte> buffer = preimages.with_room(i);
               std::memcpy(&buffer[DomainTag::kBytes], digest.data(), digest.size());
               digest = sha256_padded_in_place(buffer, preimages.bytes());
             }
             keep(digest);
           });
  };
  const std::string reach = "ratio at most 1.15";
  BenchFigures figures;
  figures.push_back(paired_figure("key.sequence", "us",
                                  in_turns(options.runs, context, sequence, library_calls), reach));
  figures.back().conditions.emplace_back("limit_is", "SHA256_Init, _Update, _Final per preimage");
  figures.push_back(paired_figure("key.sequence_padded", "us",
                                  in_turns(options.runs, context, sequence, padded_in_place),
                                  reach));
  figures.back().conditions.emplace_back(
      "limit_is", "SHA256_Init, _Update per preimage, padding written in place");
  figures.push_back(paired_figure("key.sequence_chained", "us",
                                  in_turns(options.runs, context, sequence, chained), ""));
  figures.back().conditions.emplace_back(
      "limit_is", "as for sequence_padded, but each preimage gets the digest before it first");
  for (BenchFigure& figure : figures) {
    figure.conditions.emplace_back("tokens", std::to_string(options.tokens));
    figure.conditions.emplace_back("block_tokens", std::to_string(options.block_tokens));
    figure.conditions.emplace_back("preimage_bytes", std::to_string(preimages.bytes()));
  }
  return figures;
}

}  // namespace tiercel
