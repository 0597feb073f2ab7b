// SPDX-License-Identifier: Apache-2.0
//
//   tag | parent 32 bytes | token count u32 | token ids, each u32 | extra count u32
//   | per extra: kind length u32 + bytes, content length u32 + bytes, offset i64
//
// A text block of 16 tokens makes 4 + 32 + 4 + 64 + 4 = 108 bytes: two SHA-256 compressions, the
// limit being 119.

#include "tiercel/key.h"

#include "key/preimage.h"

namespace tiercel {
namespace {

BlockKey hash_block(DomainTag tag, const BlockKey& parent, std::span<const TokenId> tokens,
                    std::span<const BlockExtra> extras) {
  Preimage preimage(tag, parent.bytes);
  preimage.put_count(tokens.size());
  preimage.put_bytes(std::as_bytes(tokens));  // little-endian already
  preimage.put_count(extras.size());
  for (const BlockExtra& extra : extras) {
    preimage.put_text(extra.kind);
    preimage.put_text(extra.content);
    preimage.put_number(extra.offset_tokens);
  }
  return BlockKey{preimage.digest()};
}

}  // namespace

BlockKey chain_block_key(const BlockKey& parent, std::span<const TokenId> tokens,
                         std::span<const BlockExtra> extras) {
  return hash_block(kBlockKeyTag, parent, tokens, extras);
}

BlockKey partial_block_key(const BlockKey& parent, std::span<const TokenId> tokens,
                           std::span<const BlockExtra> extras) {
  return hash_block(kPartialBlockKeyTag, parent, tokens, extras);
}

}  // namespace tiercel
