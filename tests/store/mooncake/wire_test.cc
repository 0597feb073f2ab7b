// SPDX-License-Identifier: Apache-2.0
//
// What we send is read back here as sidecar.py reads it; what it sends is not trusted.
#include "store/mooncake/wire.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "store/store_harness.h"

namespace tiercel::mooncake {
namespace {

using Bytes = std::vector<std::byte>;

class Reader {
 public:
  explicit Reader(const Bytes& bytes) : bytes_(bytes) {}
  template <typename T>
  T take() {
    T value{};
    if (place_ + sizeof value > bytes_.size()) {
      ADD_FAILURE() << "the message is too short";
      return value;
    }
    std::memcpy(&value, bytes_.data() + place_, sizeof value);
    place_ += sizeof value;
    return value;
  }
  std::string take_text(size_t size) {
    std::string text(reinterpret_cast<const char*>(bytes_.data() + place_), size);
    place_ += size;
    return text;
  }
  size_t rest() const { return bytes_.size() - place_; }

 private:
  const Bytes& bytes_;
  size_t place_ = 0;
};

Header expect_header(Reader& reader, Request kind, size_t count, uint64_t id, uint64_t extra) {
  const auto header = reader.take<Header>();
  EXPECT_EQ(header.kind, static_cast<uint32_t>(kind));
  EXPECT_EQ(header.count, count);
  EXPECT_EQ(header.id, id);
  EXPECT_EQ(header.extra, extra);
  return header;
}

TEST(MooncakeWire, AMapIsItsSizeAndAWish) {
  for (bool populate : {false, true}) {
    const Bytes message = encode_map(7, uint64_t{3} << 40, populate);
    Reader reader(message);
    expect_header(reader, Request::kMap, 1, 7, 0);
    EXPECT_EQ(reader.take<uint64_t>(), uint64_t{3} << 40);
    EXPECT_EQ(reader.take<uint64_t>(), populate ? 1U : 0U);
    EXPECT_EQ(reader.rest(), 0U);
  }
}

TEST(MooncakeWire, AClearIsItsPrefix) {
  const Bytes message = encode_clear(9, "a.prefix");
  Reader reader(message);
  expect_header(reader, Request::kClear, 1, 9, 0);
  EXPECT_EQ(reader.take_text(reader.rest()), "a.prefix");
}

TEST(MooncakeWire, KeysComeInTheirOrder) {
  for (size_t count : {size_t{0}, size_t{1}, size_t{3}, kItemsMax}) {
    std::vector<ObjectKey> keys;
    for (size_t i = 0; i < count; ++i) keys.push_back(test_key(static_cast<uint32_t>(i)));
    const Bytes message = encode_keys(Request::kRemove, 1, keys);
    Reader reader(message);
    expect_header(reader, Request::kRemove, count, 1, 0);
    for (const ObjectKey& key : keys) {
      EXPECT_EQ(reader.take_text(ObjectKey::kLength), key.text());
    }
    EXPECT_EQ(reader.rest(), 0U);
  }
}

TEST(MooncakeWire, TransfersAreAddressesThenLengthsThenKeys) {
  Random random(3);
  for (int round = 0; round < 500; ++round) {
    const size_t count = random.between(1, 40);
    const size_t parts = random.between(1, 4);
    std::vector<ObjectKey> keys;
    std::vector<Piece> pieces;
    for (size_t i = 0; i < count; ++i)
      keys.push_back(test_key(static_cast<uint32_t>(random.next())));
    for (size_t i = 0; i < count * parts; ++i) pieces.push_back({random.next(), random.next()});
    const Request kind = round % 2 == 0 ? Request::kGet : Request::kReplace;
    const uint64_t id = random.next();
    const Bytes message = encode_transfer(kind, id, keys, pieces);
    Reader reader(message);
    expect_header(reader, kind, count, id, parts);
    for (const Piece& piece : pieces) EXPECT_EQ(reader.take<uint64_t>(), piece.address);
    for (const Piece& piece : pieces) EXPECT_EQ(reader.take<uint64_t>(), piece.bytes);
    for (const ObjectKey& key : keys) EXPECT_EQ(reader.take_text(ObjectKey::kLength), key.text());
    EXPECT_EQ(reader.rest(), 0U);
  }
}

Bytes answer(uint32_t kind, uint32_t count, uint64_t id, uint64_t extra, const std::string& body) {
  const Header header{kind, count, id, extra};
  Bytes bytes(sizeof header + body.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, body.data(), body.size());
  return bytes;
}

std::string as_body(const std::vector<int64_t>& codes) {
  return {reinterpret_cast<const char*>(codes.data()), codes.size() * sizeof(int64_t)};
}

TEST(MooncakeWire, RepliesComeBackAsTheyWereSent) {
  Random random(5);
  for (int round = 0; round < 500; ++round) {
    std::vector<int64_t> codes(random.below(kItemsMax + 1));
    for (int64_t& code : codes) code = static_cast<int64_t>(random.next());
    const uint64_t id = random.next();
    const uint64_t busy = random.next();
    const Bytes bytes = answer(static_cast<uint32_t>(Answer::kReply),
                               static_cast<uint32_t>(codes.size()), id, busy, as_body(codes));
    const Result<Message> message = decode(bytes);
    ASSERT_TRUE(message) << message.error().message();
    EXPECT_EQ(message->kind, Answer::kReply);
    EXPECT_EQ(message->id, id);
    EXPECT_EQ(message->busy_ns, busy);
    EXPECT_EQ(message->codes, codes);
  }
}

TEST(MooncakeWire, TextsComeBackAsTheyWereSent) {
  for (Answer kind : {Answer::kStage, Answer::kUp, Answer::kFailed, Answer::kNote}) {
    for (const std::string& text : {std::string(), std::string("words\0more", 10)}) {
      const Result<Message> message = decode(answer(static_cast<uint32_t>(kind), 0, 0, 0, text));
      ASSERT_TRUE(message);
      EXPECT_EQ(message->kind, kind);
      EXPECT_EQ(message->text, text);
    }
  }
}

TEST(MooncakeWire, RefusesWhatIsNoAnswer) {
  EXPECT_FALSE(decode({}));
  EXPECT_FALSE(decode(Bytes(sizeof(Header) - 1)));
  for (uint32_t kind : {0U, 6U, 0xffffffffU}) EXPECT_FALSE(decode(answer(kind, 0, 0, 0, "")));
  const auto reply = static_cast<uint32_t>(Answer::kReply);
  EXPECT_FALSE(decode(answer(reply, 1, 0, 0, "")));
  EXPECT_FALSE(decode(answer(reply, 0, 0, 0, "12345678")));
  EXPECT_FALSE(decode(answer(reply, 1, 0, 0, "1234567")));
  EXPECT_FALSE(decode(answer(reply, 0xffffffff, 0, 0, "12345678"))) << "and takes no such memory";
}

// Answers with a byte changed, cut or longer: a message, or a refusal.
TEST(MooncakeWire, AnyBytesAreAMessageOrRefusedInWords) {
  Random random(9);
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes =
        answer(static_cast<uint32_t>(random.between(1, 5)), static_cast<uint32_t>(random.below(4)),
               random.next(), random.next(), as_body(std::vector<int64_t>(random.below(4), -1)));
    if (random.chance(0.7))
      bytes[random.below(bytes.size())] = static_cast<std::byte>(random.next());
    if (random.chance(0.5)) bytes.resize(random.below(bytes.size() + 9));
    const Result<Message> message = decode(bytes);
    if (!message) {
      EXPECT_EQ(message.code(), Code::kInvalid);
      EXPECT_FALSE(message.error().message().empty());
    } else if (message->kind == Answer::kReply) {
      EXPECT_EQ(message->codes.size() * sizeof(int64_t) + sizeof(Header), bytes.size());
    }
  }
}

TEST(MooncakeWire, WhatMooncakesCodesMean) {
  EXPECT_EQ(code_of(Request::kExists, 1, 0), Code::kOk);
  EXPECT_EQ(code_of(Request::kExists, 0, 0), Code::kNotFound);
  EXPECT_EQ(code_of(Request::kExists, -901, 0), Code::kTimeout);
  EXPECT_EQ(code_of(Request::kExists, -900, 0), Code::kUnavailable);
  EXPECT_EQ(code_of(Request::kGet, 100, 100), Code::kOk);
  EXPECT_EQ(code_of(Request::kGet, 99, 100), Code::kInvalid) << "another length";
  EXPECT_EQ(code_of(Request::kGet, -600, 100), Code::kInvalid) << "a longer one";
  EXPECT_EQ(code_of(Request::kGet, -704, 100), Code::kNotFound);
  EXPECT_EQ(code_of(Request::kGet, -703, 100), Code::kNotFound) << "is being written";
  EXPECT_EQ(code_of(Request::kGet, -707, 100), Code::kTimeout) << "outlived its lease";
  EXPECT_EQ(code_of(Request::kGet, -801, 100), Code::kCorrupt);
  EXPECT_EQ(code_of(Request::kPut, 0, 100), Code::kOk);
  EXPECT_EQ(code_of(Request::kPut, -200, 100), Code::kNoSpace);
  EXPECT_EQ(code_of(Request::kPut, -1700, 100), Code::kNoSpace) << "a tenant's quota";
  EXPECT_EQ(code_of(Request::kReplace, -706, 100), Code::kBusy);
  EXPECT_EQ(code_of(Request::kReplace, -714, 100), Code::kBusy);
  EXPECT_EQ(code_of(Request::kPut, -703, 100), Code::kBusy);
  EXPECT_EQ(code_of(Request::kRemove, -704, 0), Code::kOk) << "is gone, whoever did it";
  EXPECT_EQ(code_of(Request::kClear, 0, 0), Code::kOk);
}

// No code, however new, counts as bytes that are there; no store ends in what the contract has not.
TEST(MooncakeWire, NoFailureCountsAsSuccess) {
  for (int64_t code = -2000; code < 0; ++code) {
    for (Request kind : {Request::kExists, Request::kGet, Request::kPut, Request::kReplace,
                         Request::kRemove, Request::kClear}) {
      const Code meant = code_of(kind, code, 100);
      EXPECT_LE(meant, Code::kInvalid);
      if (kind == Request::kRemove && code == -704) continue;
      EXPECT_NE(meant, Code::kOk) << code;
    }
  }
}

}  // namespace
}  // namespace tiercel::mooncake
