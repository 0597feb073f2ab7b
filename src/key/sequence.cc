// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <tuple>

#include "tiercel/key.h"

#include "base/assert.h"

namespace tiercel {
namespace {

constexpr size_t kItemKindBytesMax = 255;
constexpr size_t kItemHashBytesMax = 65535;

// By begin; what begins together is ordered by content, so that the order of declaration does not
// show in the keys.
bool comes_before(const SequenceItem& a, const SequenceItem& b) {
  return std::tie(a.begin, a.kind, a.content_hash, a.end) <
         std::tie(b.begin, b.kind, b.content_hash, b.end);
}

Status check_item(const SequenceItem& item, uint64_t hashed_tokens) {
  if (item.end <= item.begin) {
    return Error(Code::kInvalid, "item covers tokens " + std::to_string(item.begin) + " to " +
                                     std::to_string(item.end) + "; its end must be greater");
  }
  if (item.kind.size() > kItemKindBytesMax) {
    return Error(Code::kInvalid, "item kind has " + std::to_string(item.kind.size()) +
                                     " bytes; allowed: 0 to " + std::to_string(kItemKindBytesMax));
  }
  if (item.content_hash.size() > kItemHashBytesMax) {
    return Error(Code::kInvalid, "item content_hash has " +
                                     std::to_string(item.content_hash.size()) +
                                     " bytes; allowed: 0 to " + std::to_string(kItemHashBytesMax));
  }
  if (item.begin < hashed_tokens) {
    return Error(Code::kInvalid,
                 "item begins at token " + std::to_string(item.begin) +
                     ", but the blocks of the first " + std::to_string(hashed_tokens) +
                     " tokens have been hashed; declare items before appending their tokens");
  }
  return {};
}

}  // namespace

Sequence::Sequence(const RootKey& root, uint32_t block_tokens)
    : block_tokens_(block_tokens), parent_(root_as_parent(root)) {
  TIERCEL_ASSERT(block_tokens > 0, "a block holds at least one token");
}

void Sequence::restart(const RootKey& root) {
  parent_ = root_as_parent(root);
  keys_.clear();
  tail_.clear();
  items_.clear();
  next_item_ = 0;
  open_items_.clear();
}

void Sequence::append(std::span<const TokenId> tokens) {
  if (!tail_.empty()) {
    const auto head = tokens.first(std::min(tokens.size(), block_tokens_ - tail_.size()));
    tail_.insert(tail_.end(), head.begin(), head.end());
    tokens = tokens.subspan(head.size());
    if (tail_.size() < block_tokens_) return;
    seal_block(tail_);
    tail_.clear();
  }
  const size_t key_count = keys_.size() + tokens.size() / block_tokens_;
  if (key_count > keys_.capacity()) keys_.reserve(std::max(key_count, 2 * keys_.capacity()));
  for (; tokens.size() >= block_tokens_; tokens = tokens.subspan(block_tokens_)) {
    seal_block(tokens.first(block_tokens_));
  }
  tail_.assign(tokens.begin(), tokens.end());
}

Status Sequence::add_item(SequenceItem item) {
  TIERCEL_TRY(check_item(item, hashed_tokens()));
  items_.insert(std::upper_bound(items_.begin(), items_.end(), item, comes_before),
                std::move(item));
  return {};
}

std::span<const BlockKey> Sequence::loadable_keys() const {
  const uint64_t tokens = token_count();
  return tokens == 0 ? keys() : keys().first((tokens - 1) / block_tokens_);
}

std::optional<BlockKey> Sequence::partial_key() const {
  if (tail_.empty()) return std::nullopt;
  return partial_block_key(parent_, tail_, extras_before(token_count()));
}

std::vector<BlockExtra> Sequence::extras_before(uint64_t end) const {
  std::vector<BlockExtra> extras;
  const auto add = [&](const SequenceItem& item) {
    extras.push_back({item.kind, item.content_hash,
                      static_cast<int64_t>(item.begin) - static_cast<int64_t>(hashed_tokens())});
  };
  for (const size_t index : open_items_) add(items_[index]);
  for (size_t index = next_item_; index < items_.size() && items_[index].begin < end; ++index) {
    add(items_[index]);
  }
  return extras;
}

void Sequence::seal_block(std::span<const TokenId> tokens) {
  if (next_item_ == items_.size() && open_items_.empty()) {  // text, the usual case
    keys_.push_back(chain_block_key(parent_, tokens));
    parent_ = keys_.back();
    return;
  }
  const uint64_t end = hashed_tokens() + block_tokens_;
  parent_ = chain_block_key(parent_, tokens, extras_before(end));
  keys_.push_back(parent_);
  for (; next_item_ < items_.size() && items_[next_item_].begin < end; ++next_item_) {
    open_items_.push_back(next_item_);
  }
  std::erase_if(open_items_, [&](size_t index) { return items_[index].end <= end; });
}

}  // namespace tiercel
