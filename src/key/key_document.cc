// SPDX-License-Identifier: Apache-2.0
//
//   tag "TCKD" | format version u32 | six texts, each length u32 + bytes | block_tokens u32
//   | group count u32 | per group: attention, layer_count, kv_head_count, head_dim_k, head_dim_v,
//   window_tokens, each u32
//
// All numbers little-endian. There is one way to write a spec and nothing may follow it, so equal
// specs have equal documents and different specs have different ones.

#include <cstring>

#include "tiercel/key.h"

#include "base/assert.h"
#include "key/domain_tag.h"
#include "key/little_endian.h"
#include "key/sha256.h"
#include "key/spec_field.h"

namespace tiercel {
namespace {

class DocumentWriter {
 public:
  void put_raw(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    document_.insert(document_.end(), bytes.begin(), bytes.end());
  }
  void put_u32(uint32_t value) {
    std::array<std::byte, sizeof(value)> bytes;
    store_little_endian(value, bytes.data());
    document_.insert(document_.end(), bytes.begin(), bytes.end());
  }
  void put_text(std::string_view text) {
    put_u32(static_cast<uint32_t>(text.size()));
    put_raw(text);
  }
  std::vector<std::byte> take() { return std::move(document_); }

 private:
  std::vector<std::byte> document_;
};

// Reads from the front; an error names the offset at which the part that is wrong starts.
class DocumentReader {
 public:
  explicit DocumentReader(std::span<const std::byte> document) : document_(document) {}

  Status expect_tag(std::string_view tag) {
    for (const char expected : tag) {
      if (offset_ == document_.size()) return ends_inside("the tag");
      if (document_[offset_] != static_cast<std::byte>(expected)) {
        return wrong(offset_, "not the tag \"" + std::string(tag) + "\"");
      }
      ++offset_;
    }
    return {};
  }

  Result<uint32_t> read_u32(const std::string& name) {
    if (document_.size() - offset_ < sizeof(uint32_t)) return ends_inside(name);
    const auto value = load_little_endian<uint32_t>(document_.data() + offset_);
    offset_ += sizeof(uint32_t);
    return value;
  }

  // `bytes` has been checked against the bound of the field.
  Result<std::string> read_raw(const std::string& name, uint32_t bytes) {
    if (document_.size() - offset_ < bytes) return ends_inside(name);
    std::string text(bytes, '\0');
    if (bytes > 0) std::memcpy(text.data(), document_.data() + offset_, bytes);
    offset_ += bytes;
    return text;
  }

  Status expect_end() const {
    if (offset_ == document_.size()) return {};
    return wrong(offset_, std::to_string(document_.size() - offset_) + " bytes too many");
  }

  // Passes a check of the number read last through, with its offset in front.
  Status at_last_number(Status check) const {
    if (check) return check;
    return wrong(offset_ - sizeof(uint32_t), check.error().message());
  }

 private:
  Error ends_inside(const std::string& name) const {
    return wrong(document_.size(), "ends inside " + name);
  }
  static Error wrong(size_t offset, const std::string& what) {
    return Error(Code::kInvalid, "key document, offset " + std::to_string(offset) + ": " + what);
  }

  std::span<const std::byte> document_;
  size_t offset_ = 0;
};

Status read_header(DocumentReader& reader) {
  TIERCEL_TRY(reader.expect_tag(kKeyDocumentTag.text()));
  TIERCEL_TRY_ASSIGN(const uint32_t version, reader.read_u32("the format version"));
  if (version == kFormatVersion) return {};
  return reader.at_last_number(
      Error(Code::kInvalid, "format version is " + std::to_string(version) +
                                "; allowed: " + std::to_string(kFormatVersion)));
}

Result<GroupSpec> read_group(DocumentReader& reader, size_t index) {
  GroupSpec group;
  TIERCEL_TRY_ASSIGN(const uint32_t attention, reader.read_u32("attention"));
  TIERCEL_TRY(reader.at_last_number(check_attention(index, attention)));
  group.attention = static_cast<AttentionKind>(attention);
  for (const GroupNumberField& field : kGroupNumberFields) {
    TIERCEL_TRY_ASSIGN(group.*field.member, reader.read_u32(field.name));
    TIERCEL_TRY(reader.at_last_number(check_group_number(index, field, group)));
  }
  return group;
}

}  // namespace

std::vector<std::byte> key_document(const KvSpec& spec) {
  TIERCEL_ASSERT(spec.validate(), "a key document is made of a valid spec");
  DocumentWriter writer;
  writer.put_raw(kKeyDocumentTag.text());
  writer.put_u32(kFormatVersion);
  for (const SpecTextField& field : kSpecTextFields) writer.put_text(spec.*field.member);
  writer.put_u32(spec.block_tokens);
  writer.put_u32(static_cast<uint32_t>(spec.groups.size()));
  for (const GroupSpec& group : spec.groups) {
    writer.put_u32(static_cast<uint32_t>(group.attention));
    for (const GroupNumberField& field : kGroupNumberFields) writer.put_u32(group.*field.member);
  }
  return writer.take();
}

Result<KvSpec> parse_key_document(std::span<const std::byte> document) {
  DocumentReader reader(document);
  TIERCEL_TRY(read_header(reader));
  KvSpec spec;
  for (const SpecTextField& field : kSpecTextFields) {
    TIERCEL_TRY_ASSIGN(const uint32_t bytes, reader.read_u32(field.name));
    TIERCEL_TRY(reader.at_last_number(check_spec_text_size(field, bytes)));
    TIERCEL_TRY_ASSIGN(spec.*field.member, reader.read_raw(field.name, bytes));
  }
  TIERCEL_TRY_ASSIGN(spec.block_tokens, reader.read_u32("block_tokens"));
  TIERCEL_TRY(reader.at_last_number(check_block_tokens(spec.block_tokens)));
  TIERCEL_TRY_ASSIGN(const uint32_t group_count, reader.read_u32("the group count"));
  TIERCEL_TRY(reader.at_last_number(check_group_count(group_count)));
  spec.groups.reserve(group_count);
  for (uint32_t index = 0; index < group_count; ++index) {
    TIERCEL_TRY_ASSIGN(GroupSpec group, read_group(reader, index));
    spec.groups.push_back(group);
  }
  TIERCEL_TRY(reader.expect_end());
  return spec;
}

Result<Namespace> make_namespace(const KvSpec& spec) {
  TIERCEL_TRY(spec.validate());
  return Namespace{sha256(key_document(spec))};
}

}  // namespace tiercel
