// SPDX-License-Identifier: Apache-2.0
//
// Identity: namespace → scope → chained block keys, and the names of slices and stored objects.
//
// A block key names a block *and everything before it*: model facts (namespace), per-request facts
// (scope), and all tokens up to its end. Equal keys mean equal KV. The byte encodings are fixed in
// docs/format.md with test vectors, so that other languages can compute the same keys.
//
// Threads: plain values and pure functions; a Sequence belongs to one thread.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tiercel/ids.h"
#include "tiercel/kv_spec.h"
#include "tiercel/status.h"

namespace tiercel {

using TokenId = uint32_t;

// Bumped whenever the meaning of stored bytes or keys changes; part of every object key and frame.
inline constexpr uint32_t kFormatVersion = 1;

// 32 bytes of SHA-256 output. The Tag keeps namespaces, roots and block keys apart.
template <typename Tag>
struct Digest {
  std::array<std::byte, 32> bytes{};

  friend auto operator<=>(const Digest&, const Digest&) = default;
  // 64 lower-case hexadecimal digits.
  std::string hex() const;
  // kInvalid unless `text` is 64 hexadecimal digits (either case).
  static Result<Digest> from_hex(std::string_view text);
};

using Namespace = Digest<struct NamespaceTag>;
using RootKey = Digest<struct RootKeyTag>;
using BlockKey = Digest<struct BlockKeyTag>;

// Canonical encoding of the spec: framed, versioned, domain-tagged (docs/format.md).
// `spec` must validate.
std::vector<std::byte> key_document(const KvSpec& spec);

// Reads a key document back; kInvalid with the offset of the first byte that is wrong. Accepts
// exactly what key_document writes, so that equal specs have equal documents.
Result<KvSpec> parse_key_document(std::span<const std::byte> document);

// SHA-256 of the key document. kInvalid as KvSpec::validate.
Result<Namespace> make_namespace(const KvSpec& spec);

// Per-request facts that change KV or must keep tenants apart; enters at the root of the chain.
struct Scope {
  std::string adapter_id;        // empty: no adapter
  std::string adapter_revision;  // content of the adapter, so that a reload under one name is new
  std::string tenant_salt;       // empty: shared with everybody who has no salt

  bool empty() const {
    return adapter_id.empty() && adapter_revision.empty() && tenant_salt.empty();
  }
  friend bool operator==(const Scope&, const Scope&) = default;
};

// Parent of the first block of every request with this namespace and scope.
RootKey make_root(const Namespace& name_space, const Scope& scope);

// One further fact about the tokens of a block: a multimodal item that overlaps it, or whatever
// else the engine declares. `kind` and `content` are opaque bytes; `offset_tokens` says where the
// item starts relative to the start of the block (negative if in an earlier block). Sequence
// refuses longer texts; the encoding itself is sound for any.
struct BlockExtra {
  std::string_view kind;     // such as "image"; at most 255 bytes
  std::string_view content;  // content hash of the item, full length; at most 65535 bytes
  int64_t offset_tokens = 0;
};

// Key of a full block. `parent` is the key before it, or the root as a block key
// (`root_as_parent`). `extras` in the order of their offsets; their order counts. Cost: two SHA-256
// compressions at 16 tokens, no allocation.
BlockKey chain_block_key(const BlockKey& parent, std::span<const TokenId> tokens,
                         std::span<const BlockExtra> extras = {});

// Key of the last, unfilled block of a prompt: a domain of its own, so it can never be a parent or
// be taken for a full block.
BlockKey partial_block_key(const BlockKey& parent, std::span<const TokenId> tokens,
                           std::span<const BlockExtra> extras = {});

BlockKey root_as_parent(const RootKey& root);

// A multimodal item, or another engine-declared fact, over the tokens [begin, end) of a sequence.
// Items that begin together may be declared in any order. `end` is not hashed: `content_hash` must
// decide how many tokens the item takes, as it does for a picture under one processor.
struct SequenceItem {
  std::string kind;
  std::string content_hash;
  uint64_t begin = 0;
  uint64_t end = 0;  // exclusive; > begin
};

// Turns the growing token list of one request into block keys, hashing each token once.
class Sequence {
 public:
  // `block_tokens` as in the spec that made the namespace behind `root`; at least 1.
  Sequence(const RootKey& root, uint32_t block_tokens);

  // As one that was just made with this root and the same block_tokens, but with the memory that
  // the keys so far took: the pages of a long sequence's keys cost as much as a quarter of its
  // hashes.
  void restart(const RootKey& root);

  // Adds tokens at the end; new full blocks get their keys now.
  void append(std::span<const TokenId> tokens);

  // Declares an item. kInvalid if its range is empty, its kind or hash is too long, or a block that
  // it overlaps has been hashed already (declare items before appending their tokens).
  Status add_item(SequenceItem item);

  // Keys of all full blocks so far, in order. Valid until the next append.
  std::span<const BlockKey> keys() const { return keys_; }

  // Keys that a request may load: the full blocks that leave at least one token to compute, so that
  // there is something to run: floor((token_count - 1) / block_tokens) blocks.
  std::span<const BlockKey> loadable_keys() const;

  uint64_t token_count() const { return hashed_tokens() + tail_.size(); }
  uint32_t block_tokens() const { return block_tokens_; }

  // Key of the tail, if the last block is not full and not empty.
  std::optional<BlockKey> partial_key() const;

 private:
  // Tokens of the full blocks; where the next block starts.
  uint64_t hashed_tokens() const { return uint64_t{keys_.size()} * block_tokens_; }
  // Extras of the next block, if it ends at token `end`.
  std::vector<BlockExtra> extras_before(uint64_t end) const;
  void seal_block(std::span<const TokenId> tokens);

  uint32_t block_tokens_;
  BlockKey parent_;
  std::vector<BlockKey> keys_;
  std::vector<TokenId> tail_;        // tokens of the unfilled block
  std::vector<SequenceItem> items_;  // sorted by begin
  size_t next_item_ = 0;             // first item that no full block overlaps
  std::vector<size_t> open_items_;   // items before next_item_ that reach into the next block
};

// Hash functions that engines use for their own block hashes.
enum class EngineHash : uint8_t { kSha256, kSha256Cbor, kXxh3, kXxh3Cbor, kUnknown };

// Block key from a hash that the engine computed itself over (parent, tokens, extras).
// `scope_included`: the engine's hash covers the scope already. An empty or included scope gives
// the hash itself; else SHA-256(tag ‖ framed scope ‖ hash). kInvalid if the hash is not 32 bytes;
// kUnsupported if the engine's hash function is weaker than SHA-256 (hash the tokens with Sequence
// instead).
Result<BlockKey> foreign_block_key(EngineHash function, std::span<const std::byte> engine_hash,
                                   const Scope& scope, bool scope_included);

// The part of a block that one rank holds. Data, not an assumption: later formats add ranges.
struct Slice {
  uint16_t rank = 0;
  uint16_t rank_count = 1;  // 0: `all`, equal on every rank and stored once (rank is 0 then)

  static constexpr Slice all() { return Slice{0, 0}; }
  bool is_all() const { return rank_count == 0; }
  friend bool operator==(const Slice&, const Slice&) = default;
};

// Name of a slice of a block in a store:
//   v<format>-<namespace, 16 hex>-<group, 2 hex>-<rank, 4 hex><rank count, 4 hex>-<key, 64 hex>
// Lower-case, fixed length, safe in a file name and a URL. No allocation.
class ObjectKey {
 public:
  static constexpr size_t kLength = 96;

  ObjectKey() = default;
  ObjectKey(const Namespace& name_space, GroupId group, Slice slice, const BlockKey& key);

  std::string_view text() const { return {text_.data(), kLength}; }
  // kInvalid unless `text` is a whole object key of this format version.
  static Result<ObjectKey> parse(std::string_view text);

  friend bool operator==(const ObjectKey&, const ObjectKey&) = default;

 private:
  std::array<char, kLength> text_{};
};

// The leading part of every object key of one namespace: "v1-<16 hex>-".
std::string object_key_prefix(const Namespace& name_space);

}  // namespace tiercel

template <typename Tag>
struct std::hash<tiercel::Digest<Tag>> {
  size_t operator()(const tiercel::Digest<Tag>& digest) const noexcept {
    size_t value = 0;
    __builtin_memcpy(&value, digest.bytes.data(), sizeof(value));  // already uniform
    return value;
  }
};
