// SPDX-License-Identifier: Apache-2.0
//
// The messages between a Mooncake store and its sidecar: whole messages over a Unix socket of one
// machine, in its byte order. Each is a header, then, by its kind:
//
//   map                  u64 bytes, u64 1 if its pages are to be provided now; a memfd comes along
//   exists, remove       `count` keys
//   get, put, replace    count × extra addresses (u64, of the sidecar), as many lengths (u64),
//                        `count` keys; `extra` is the number of pieces of each object
//   clear                the prefix
//   segment              u64 bytes, u64 address at which it begins in the pool's words (0: it is
//   not
//                        in the pool), text; if it is there, the memfd comes along; `extra` counts
//                        these messages
//   stage, up, failed    text
//   note                 text: what is wrong and does not keep it from serving
//   reply                `count` codes (i64) as Mooncake gave them; `extra` is the time in ns that
//                        the call took there; kReadHere is added to the length of an object that
//                        was copied from our own segment
//
// sidecar.py is the other side.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tiercel/key.h"
#include "tiercel/status.h"

namespace tiercel::mooncake {

enum class Request : uint32_t {
  kMap = 1,
  kExists = 2,
  kGet = 3,
  kPut = 4,
  kReplace = 5,
  kRemove = 6,
  kClear = 7,
  kSegment = 8,
};
constexpr bool is_put(Request kind) { return kind == Request::kPut || kind == Request::kReplace; }

enum class Answer : uint32_t { kStage = 1, kUp = 2, kFailed = 3, kReply = 4, kNote = 5 };

struct Header {
  uint32_t kind = 0;
  uint32_t count = 0;
  uint64_t id = 0;
  uint64_t extra = 0;
};
static_assert(sizeof(Header) == 24);

// Items of one message. A message stays well below what a socket takes at once.
inline constexpr size_t kItemsMax = 512;
inline constexpr size_t kAnswerBytesMax = sizeof(Header) + kItemsMax * sizeof(int64_t);
static_assert(kAnswerBytesMax >= size_t{4096} + sizeof(Header), "texts are cut to this");

// Where one piece of an object stands in the sidecar's memory.
struct Piece {
  uint64_t address = 0;
  uint64_t bytes = 0;
};

std::vector<std::byte> encode_map(uint64_t id, uint64_t bytes, bool populate);
std::vector<std::byte> encode_keys(Request kind, uint64_t id, std::span<const ObjectKey> keys);
// `pieces` has the same number for each key, those of the first key first.
std::vector<std::byte> encode_transfer(Request kind, uint64_t id, std::span<const ObjectKey> keys,
                                       std::span<const Piece> pieces);
// Where a segment is in the pool.
struct SegmentPlace {
  uint64_t base = 0;  // address of its first byte there; 0: it is not in the pool
  // The names by which the pool prefers it for puts, newline, and in the addresses of objects.
  std::string names;
  bool operator==(const SegmentPlace&) const = default;
};
std::vector<std::byte> encode_segment(uint64_t id, uint64_t generation, uint64_t bytes,
                                      const SegmentPlace& place);
struct SegmentNews {
  uint64_t bytes = 0;
  SegmentPlace place;
};
// kInvalid if it is something else.
Result<SegmentNews> decode_segment(std::span<const std::byte> message);
std::vector<std::byte> encode_clear(uint64_t id, std::string_view prefix);

struct Message {
  Answer kind = Answer::kStage;
  uint64_t id = 0;
  uint64_t busy_ns = 0;
  std::vector<int64_t> codes;  // of a reply
  std::string text;            // of the others
};
// kInvalid if the sidecar has sent something else.
Result<Message> decode(std::span<const std::byte> bytes);

// What a code of Mooncake means for one item. `bytes` is the length of the object that a get or
// put is about.
Code code_of(Request kind, int64_t answer, uint64_t bytes);

// local_reads.py knows it too.
inline constexpr int64_t kReadHere = int64_t{1} << 62;
// Whether the object came from our own segment.
inline bool is_read_here(int64_t answer) { return answer >= kReadHere; }

}  // namespace tiercel::mooncake
