// SPDX-License-Identifier: Apache-2.0
#include "store/mooncake/wire.h"

#include <cstring>

#include "base/assert.h"

namespace tiercel::mooncake {
namespace {

// Mooncake's codes, as its documentation has them. A read that ends in any other one is a miss.
constexpr int64_t kNoAvailableHandle = -200;
constexpr int64_t kInvalidParameters = -600;
constexpr int64_t kReplicaNotReady = -703;
constexpr int64_t kObjectNotFound = -704;
constexpr int64_t kObjectBusyFirst = -714;
constexpr int64_t kObjectBusyLast = -706;
constexpr int64_t kLeaseExpired = -707;
constexpr int64_t kChecksumMismatch = -801;
constexpr int64_t kRpcTimeout = -901;
constexpr int64_t kTenantQuotaExceeded = -1700;

class Writer {
 public:
  explicit Writer(size_t bytes) { bytes_.reserve(bytes); }
  void add(const void* data, size_t size) {
    const auto* first = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), first, first + size);
  }
  template <typename T>
  void add(const T& value) {
    add(&value, sizeof value);
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

Header header_of(Request kind, size_t count, uint64_t id, uint64_t extra) {
  return {static_cast<uint32_t>(kind), static_cast<uint32_t>(count), id, extra};
}

Code read_code(int64_t answer, uint64_t bytes) {
  if (answer >= 0) {
    const int64_t length = is_read_here(answer) ? answer - kReadHere : answer;
    return static_cast<uint64_t>(length) == bytes ? Code::kOk : Code::kInvalid;
  }
  switch (answer) {
    // While it is being written it is not there for anybody.
    case kObjectNotFound:
    case kReplicaNotReady:
      return Code::kNotFound;
    // The object is larger than what was asked for.
    case kInvalidParameters:
      return Code::kInvalid;
    case kChecksumMismatch:
      return Code::kCorrupt;
    case kRpcTimeout:
    case kLeaseExpired:
      return Code::kTimeout;
    default:
      return Code::kUnavailable;
  }
}

Code write_code(int64_t answer) {
  if (answer >= 0) return Code::kOk;
  if (answer == kNoAvailableHandle || answer == kTenantQuotaExceeded) return Code::kNoSpace;
  if (answer == kInvalidParameters) return Code::kInvalid;
  if (answer == kRpcTimeout) return Code::kTimeout;
  const bool is_busy = answer >= kObjectBusyFirst && answer <= kObjectBusyLast;
  return is_busy || answer == kReplicaNotReady ? Code::kBusy : Code::kUnavailable;
}

}  // namespace

std::vector<std::byte> encode_map(uint64_t id, uint64_t bytes, bool populate) {
  Writer writer(sizeof(Header) + 2 * sizeof(uint64_t));
  writer.add(header_of(Request::kMap, 1, id, 0));
  writer.add(bytes);
  writer.add(uint64_t{populate ? 1u : 0u});
  return writer.take();
}

std::vector<std::byte> encode_segment(uint64_t id, uint64_t generation, uint64_t bytes,
                                      const SegmentPlace& place) {
  Writer writer(sizeof(Header) + 2 * sizeof(uint64_t) + place.names.size());
  writer.add(header_of(Request::kSegment, 1, id, generation));
  writer.add(bytes);
  writer.add(place.base);
  writer.add(place.names.data(), place.names.size());
  return writer.take();
}

std::vector<std::byte> encode_keys(Request kind, uint64_t id, std::span<const ObjectKey> keys) {
  Writer writer(sizeof(Header) + keys.size() * ObjectKey::kLength);
  writer.add(header_of(kind, keys.size(), id, 0));
  for (const ObjectKey& key : keys) writer.add(key.text().data(), ObjectKey::kLength);
  return writer.take();
}

std::vector<std::byte> encode_transfer(Request kind, uint64_t id, std::span<const ObjectKey> keys,
                                       std::span<const Piece> pieces) {
  TIERCEL_ASSERT(!keys.empty() && pieces.size() % keys.size() == 0,
                 "objects of one message have equally many pieces");
  Writer writer(sizeof(Header) + pieces.size() * sizeof(Piece) + keys.size() * ObjectKey::kLength);
  writer.add(header_of(kind, keys.size(), id, pieces.size() / keys.size()));
  for (const Piece& piece : pieces) writer.add(piece.address);
  for (const Piece& piece : pieces) writer.add(piece.bytes);
  for (const ObjectKey& key : keys) writer.add(key.text().data(), ObjectKey::kLength);
  return writer.take();
}

std::vector<std::byte> encode_clear(uint64_t id, std::string_view prefix) {
  Writer writer(sizeof(Header) + prefix.size());
  writer.add(header_of(Request::kClear, 1, id, 0));
  writer.add(prefix.data(), prefix.size());
  return writer.take();
}

Result<SegmentNews> decode_segment(std::span<const std::byte> message) {
  Header header;
  constexpr size_t kFixedBytes = sizeof header + 2 * sizeof(uint64_t);
  if (message.size() >= kFixedBytes) std::memcpy(&header, message.data(), sizeof header);
  if (header.kind != static_cast<uint32_t>(Request::kSegment)) {
    return Error(Code::kInvalid,
                 "a message of " + std::to_string(message.size()) + " bytes tells of no segment");
  }
  SegmentNews news;
  std::memcpy(&news.bytes, message.data() + sizeof header, sizeof(uint64_t));
  std::memcpy(&news.place.base, message.data() + sizeof header + sizeof(uint64_t),
              sizeof(uint64_t));
  const std::span<const std::byte> names = message.subspan(kFixedBytes);
  news.place.names.assign(reinterpret_cast<const char*>(names.data()), names.size());
  return news;
}

Result<Message> decode(std::span<const std::byte> bytes) {
  Header header;
  if (bytes.size() < sizeof header) {
    return Error(Code::kInvalid, "the sidecar has sent " + std::to_string(bytes.size()) +
                                     " bytes; no message is "
                                     "so short");
  }
  std::memcpy(&header, bytes.data(), sizeof header);
  const std::span<const std::byte> body = bytes.subspan(sizeof header);
  Message message;
  message.kind = static_cast<Answer>(header.kind);
  message.id = header.id;
  message.busy_ns = header.extra;
  switch (message.kind) {
    case Answer::kReply:
      if (body.size() != header.count * sizeof(int64_t)) break;
      message.codes.resize(header.count);
      if (!body.empty()) std::memcpy(message.codes.data(), body.data(), body.size());
      return message;
    case Answer::kStage:
    case Answer::kUp:
    case Answer::kFailed:
    case Answer::kNote:
      message.text.assign(reinterpret_cast<const char*>(body.data()), body.size());
      return message;
  }
  return Error(Code::kInvalid, "the sidecar has sent a message of kind " +
                                   std::to_string(header.kind) + " with " +
                                   std::to_string(body.size()) + " bytes, which is none");
}

Code code_of(Request kind, int64_t answer, uint64_t bytes) {
  switch (kind) {
    case Request::kGet:
      return read_code(answer, bytes);
    case Request::kExists:
      return answer == 1 ? Code::kOk : answer == 0 ? Code::kNotFound : read_code(answer, 0);
    case Request::kRemove:
      return answer == kObjectNotFound ? Code::kOk : write_code(answer);
    case Request::kMap:
    case Request::kSegment:
    case Request::kPut:
    case Request::kReplace:
    case Request::kClear:
      break;
  }
  return write_code(answer);
}

}  // namespace tiercel::mooncake
