// SPDX-License-Identifier: Apache-2.0
#include "transfer/process/messages.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/assert.h"
#include "base/quantity.h"
#include "transfer/rank_channel.h"

namespace tiercel {
namespace {

enum class MessageKind : uint16_t { kHello = 1, kWelcome = 2, kReady = 3, kRefusal = 4 };

constexpr std::array<char, 4> kMagic = {'t', 'c', 'r', 'k'};
constexpr uint32_t kDiskQueueDepthMax = 4096;
constexpr uint32_t kStoreBatchMax = 1u << 20;

struct Head {
  std::array<char, 4> magic;
  uint16_t version;
  uint16_t kind;
  uint32_t bytes;
  uint32_t reserved;
};

struct WireHello {
  Head head;
  uint32_t op_bytes;
  uint32_t completion_bytes;
  uint32_t rank;
  uint32_t has_namespace;
  Namespace name_space;
};

struct WireDeviceGroup {
  uint64_t offset_bytes;
  uint32_t block_count;
  uint32_t reserved;
};

struct WireGeometry {
  uint32_t group_count;
  uint32_t rank_count;
  uint32_t extent_count;
  uint32_t last_extent_slots;
  std::array<uint32_t, kGroupCountMax> slots_per_extent;
  std::array<std::array<uint64_t, kRankCountMax>, kGroupCountMax> payload_bytes;
};

struct WireWelcome {
  Head head;
  WireGeometry geometry;
  Sha256Digest geometry_digest;
  Namespace name_space;
  uint64_t writer_epoch;
  int64_t spin_ns;
  uint64_t device_bytes;
  int64_t disk_sync_interval_ns;
  int64_t disk_stuck_after_ns;
  std::array<WireDeviceGroup, kGroupCountMax> device_groups;
  uint32_t ring_ops;
  uint32_t rank;
  uint16_t slice_rank;
  uint16_t slice_rank_count;
  uint32_t store_batch_max;
  uint32_t disk_queue_depth;
  uint8_t verify;
  uint8_t huge_pages;
  uint8_t lock_memory;
  uint8_t prefault;
  uint8_t has_disk;
  uint8_t disk_sync;
  uint8_t disk_io;
  uint8_t disk_register_memory;
  std::array<uint8_t, 2> reserved;
  uint16_t store_url_bytes;
  std::array<char, kStoreUrlBytesMax> store_url;
};

struct WireReady {
  Head head;
};

struct WireRefusal {
  Head head;
  uint8_t code;
  std::array<uint8_t, 5> reserved;
  uint16_t text_bytes;
  std::array<char, kRefusalBytesMax> text;
};

template <typename Wire>
constexpr bool is_plain =
    std::is_trivially_copyable_v<Wire>&& std::has_unique_object_representations_v<Wire> &&
    sizeof(Wire) <= kHandshakeBytesMax;
static_assert(is_plain<WireHello> && is_plain<WireWelcome> && is_plain<WireReady> &&
                  is_plain<WireRefusal>,
              "messages have no bytes that nobody sets");

template <typename Wire>
Wire begin(MessageKind kind) {
  Wire wire{};
  wire.head = {.magic = kMagic,
               .version = kRankProtocolVersion,
               .kind = static_cast<uint16_t>(kind),
               .bytes = sizeof(Wire),
               .reserved = 0};
  return wire;
}

template <typename Wire>
std::vector<std::byte> to_bytes(const Wire& wire) {
  std::vector<std::byte> bytes(sizeof(Wire));
  std::memcpy(bytes.data(), &wire, sizeof(Wire));
  return bytes;
}

Error refuse(const std::string& field, uint64_t value, const std::string& allowed) {
  return Error(Code::kInvalid,
               "handshake: " + field + " is " + std::to_string(value) + "; allowed: " + allowed);
}

Status check_flag(const char* field, uint32_t value) {
  return value <= 1 ? Status() : refuse(field, value, "0 or 1");
}

Error read_refusal(const WireRefusal& wire) {
  const bool known = wire.code > 0 && wire.code <= static_cast<uint8_t>(Code::kInternal);
  const size_t bytes = std::min<size_t>(wire.text_bytes, wire.text.size());
  std::string text(wire.text.data(), bytes);
  // Text from outside must not forge lines in a log.
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return Error(known ? static_cast<Code>(wire.code) : Code::kInvalid,
               "refused by the other side: " + text);
}

// The message as a Wire of the kind, or why it is none.
template <typename Wire>
Result<Wire> read(std::span<const std::byte> bytes, MessageKind kind) {
  Head head;
  if (bytes.size() < sizeof(head)) {
    return refuse("message length", bytes.size(), "at least " + std::to_string(sizeof(head)));
  }
  std::memcpy(&head, bytes.data(), sizeof(head));
  if (head.magic != kMagic) {
    return Error(Code::kInvalid, "handshake: the message does not begin with the magic word");
  }
  if (head.version != kRankProtocolVersion) {
    return refuse(
        "protocol version of the other side", head.version,
        std::to_string(kRankProtocolVersion) + "; let control plane and rank be of the same build");
  }
  if (head.reserved != 0) return refuse("reserved field", head.reserved, "0");
  if (head.bytes != bytes.size()) {
    return refuse("message length", bytes.size(),
                  std::to_string(head.bytes) + ", as its head says");
  }
  if (head.kind == static_cast<uint16_t>(MessageKind::kRefusal) &&
      bytes.size() == sizeof(WireRefusal)) {
    WireRefusal refusal;
    std::memcpy(&refusal, bytes.data(), sizeof(refusal));
    return read_refusal(refusal);
  }
  if (head.kind != static_cast<uint16_t>(kind)) {
    return refuse("kind of message", head.kind,
                  std::to_string(static_cast<uint16_t>(kind)) + " at this step, or a refusal");
  }
  Wire wire;
  if (bytes.size() != sizeof(wire)) {
    return refuse("message length", bytes.size(), std::to_string(sizeof(wire)));
  }
  std::memcpy(&wire, bytes.data(), sizeof(wire));
  return wire;
}

WireGeometry to_wire(const SlotGeometry& geometry) {
  const SlotGeometryOptions options = geometry.options();
  WireGeometry wire{};
  wire.group_count = geometry.group_count();
  wire.rank_count = geometry.rank_count();
  wire.extent_count = options.extent_count;
  wire.last_extent_slots = options.last_extent_slots;
  for (size_t group = 0; group < geometry.group_count(); ++group) {
    wire.slots_per_extent[group] = options.slots_per_extent[group];
    std::copy(options.payload_bytes[group].begin(), options.payload_bytes[group].end(),
              wire.payload_bytes[group].begin());
  }
  return wire;
}

Result<SlotGeometry> from_wire(const WireGeometry& wire) {
  if (wire.group_count < 1 || wire.group_count > kGroupCountMax) {
    return refuse("group count", wire.group_count, "1 to " + std::to_string(kGroupCountMax));
  }
  if (wire.rank_count < 1 || wire.rank_count > kRankCountMax) {
    return refuse("rank count", wire.rank_count, "1 to " + std::to_string(kRankCountMax));
  }
  SlotGeometryOptions options;
  options.extent_count = wire.extent_count;
  options.last_extent_slots = wire.last_extent_slots;
  for (size_t group = 0; group < wire.group_count; ++group) {
    options.slots_per_extent.push_back(wire.slots_per_extent[group]);
    const auto first = wire.payload_bytes[group].begin();
    options.payload_bytes.emplace_back(first, first + wire.rank_count);
  }
  return SlotGeometry::create(std::move(options));
}

Result<std::optional<DiskConfig>> disk_from_wire(const WireWelcome& wire) {
  TIERCEL_TRY(check_flag("has_disk", wire.has_disk));
  TIERCEL_TRY(check_flag("disk_register_memory", wire.disk_register_memory));
  if (wire.disk_sync > static_cast<uint8_t>(DiskSync::kInterval)) {
    return refuse("disk_sync", wire.disk_sync, "0 to 2");
  }
  if (wire.disk_io > static_cast<uint8_t>(DiskIoWay::kThreads)) {
    return refuse("disk_io", wire.disk_io, "0 to 2");
  }
  if (wire.has_disk == 0) {
    const uint64_t rest = wire.disk_sync | wire.disk_io | wire.disk_register_memory |
                          wire.disk_queue_depth |
                          static_cast<uint64_t>(wire.disk_sync_interval_ns) |
                          static_cast<uint64_t>(wire.disk_stuck_after_ns);
    if (rest != 0) return refuse("field of a disk that is not there", rest, "0");
    return std::optional<DiskConfig>();
  }
  DiskConfig disk;
  disk.sync = static_cast<DiskSync>(wire.disk_sync);
  disk.io = static_cast<DiskIoWay>(wire.disk_io);
  disk.register_memory = wire.disk_register_memory == 1;
  disk.queue_depth = wire.disk_queue_depth;
  disk.sync_interval = Duration(wire.disk_sync_interval_ns);
  disk.stuck_after = Duration(wire.disk_stuck_after_ns);
  return std::optional<DiskConfig>(disk);
}

Sha256Digest digest_of(const WireGeometry& wire) {
  return sha256(std::as_bytes(std::span(&wire, 1)));
}

Status check_device(const WelcomeMessage& welcome) {
  const size_t wanted = welcome.device_bytes > 0 ? welcome.geometry.group_count() : 0;
  if (welcome.device_groups.size() != wanted) {
    return refuse("number of device groups", welcome.device_groups.size(), std::to_string(wanted));
  }
  for (size_t i = 0; i < welcome.device_groups.size(); ++i) {
    const DeviceGroupPlace& place = welcome.device_groups[i];
    const GroupId group(static_cast<GroupId::rep>(i));
    uint64_t end = 0;
    if (__builtin_mul_overflow(welcome.geometry.payload_bytes(group, welcome.worker.rank),
                               place.block_count, &end) ||
        __builtin_add_overflow(end, place.offset_bytes, &end) || end > welcome.device_bytes) {
      return Error(Code::kInvalid,
                   "handshake: " + std::to_string(place.block_count) + " device blocks of group " +
                       std::to_string(i) + " from byte " + std::to_string(place.offset_bytes) +
                       " on do not fit; allowed: within the " +
                       std::to_string(welcome.device_bytes) + " bytes of device memory");
    }
  }
  return {};
}

Status check_disk(const DiskConfig& disk) {
  if (disk.queue_depth < 1 || disk.queue_depth > kDiskQueueDepthMax) {
    return refuse("disk queue depth", disk.queue_depth,
                  "1 to " + std::to_string(kDiskQueueDepthMax));
  }
  for (const auto& [name, duration] : {std::pair("disk sync interval", disk.sync_interval),
                                       std::pair("disk stuck_after", disk.stuck_after)}) {
    if (duration > Duration::zero()) continue;
    return Error(Code::kInvalid, std::string("handshake: ") + name + " is " +
                                     format_duration(duration) + "; allowed: more than 0");
  }
  return {};
}

}  // namespace

Sha256Digest geometry_digest(const SlotGeometry& geometry) { return digest_of(to_wire(geometry)); }

Status check_welcome(const WelcomeMessage& welcome) {
  TIERCEL_TRY(check_ring_ops(welcome.ring_ops));
  const RankWorkerOptions& worker = welcome.worker;
  if (worker.rank >= welcome.geometry.rank_count()) {
    return refuse("rank", worker.rank,
                  "less than " + std::to_string(welcome.geometry.rank_count()));
  }
  if (worker.store_batch_max < 1 || worker.store_batch_max > kStoreBatchMax) {
    return refuse("store_batch_max", worker.store_batch_max,
                  "1 to " + std::to_string(kStoreBatchMax));
  }
  if (welcome.spin < Duration::zero() || welcome.spin > std::chrono::seconds(1)) {
    return Error(Code::kInvalid,
                 "handshake: spin is " + format_duration(welcome.spin) + "; allowed: 0 to 1 s");
  }
  if (welcome.store_url.size() > kStoreUrlBytesMax) {
    return refuse("length of the store's URL", welcome.store_url.size(),
                  "0 to " + std::to_string(kStoreUrlBytesMax));
  }
  TIERCEL_TRY(check_disk(welcome.disk.value_or(DiskConfig{})));
  return check_device(welcome);
}

size_t WelcomeMessage::fd_count() const {
  return kWelcomeFdsMin + (device_bytes > 0 ? 1 : 0) + (disk ? 2 : 0);
}

std::vector<std::byte> encode_hello(const HelloMessage& hello) {
  auto wire = begin<WireHello>(MessageKind::kHello);
  wire.op_bytes = sizeof(BlockOp);
  wire.completion_bytes = sizeof(Completion);
  wire.rank = hello.rank;
  wire.has_namespace = hello.name_space ? 1 : 0;
  wire.name_space = hello.name_space.value_or(Namespace{});
  return to_bytes(wire);
}

Result<HelloMessage> decode_hello(std::span<const std::byte> bytes) {
  TIERCEL_TRY_ASSIGN(const auto wire, read<WireHello>(bytes, MessageKind::kHello));
  if (wire.op_bytes != sizeof(BlockOp)) {
    return refuse("op_bytes", wire.op_bytes, std::to_string(sizeof(BlockOp)));
  }
  if (wire.completion_bytes != sizeof(Completion)) {
    return refuse("completion_bytes", wire.completion_bytes, std::to_string(sizeof(Completion)));
  }
  if (wire.rank >= kRankCountMax) {
    return refuse("rank", wire.rank, "less than " + std::to_string(kRankCountMax));
  }
  TIERCEL_TRY(check_flag("has_namespace", wire.has_namespace));
  HelloMessage hello;
  hello.rank = wire.rank;
  if (wire.has_namespace == 1) hello.name_space = wire.name_space;
  return hello;
}

std::vector<std::byte> encode_welcome(const WelcomeMessage& welcome) {
  TIERCEL_ASSERT(check_welcome(welcome).has_value(), "a welcome is checked before it is sent");
  auto wire = begin<WireWelcome>(MessageKind::kWelcome);
  wire.geometry = to_wire(welcome.geometry);
  wire.geometry_digest = digest_of(wire.geometry);
  wire.name_space = welcome.worker.name_space;
  wire.writer_epoch = welcome.worker.writer_epoch;
  wire.spin_ns = welcome.spin.count();
  wire.device_bytes = welcome.device_bytes;
  for (size_t i = 0; i < welcome.device_groups.size(); ++i) {
    wire.device_groups[i] = {.offset_bytes = welcome.device_groups[i].offset_bytes,
                             .block_count = welcome.device_groups[i].block_count,
                             .reserved = 0};
  }
  wire.ring_ops = welcome.ring_ops;
  wire.rank = welcome.worker.rank;
  wire.slice_rank = welcome.worker.slice.rank;
  wire.slice_rank_count = welcome.worker.slice.rank_count;
  wire.store_batch_max = welcome.worker.store_batch_max;
  wire.verify = welcome.worker.verify ? 1 : 0;
  wire.huge_pages = welcome.huge_pages ? 1 : 0;
  wire.lock_memory = welcome.lock_memory ? 1 : 0;
  wire.prefault = welcome.prefault ? 1 : 0;
  if (welcome.disk) {
    wire.has_disk = 1;
    wire.disk_sync = static_cast<uint8_t>(welcome.disk->sync);
    wire.disk_io = static_cast<uint8_t>(welcome.disk->io);
    wire.disk_register_memory = welcome.disk->register_memory ? 1 : 0;
    wire.disk_queue_depth = welcome.disk->queue_depth;
    wire.disk_sync_interval_ns = welcome.disk->sync_interval.count();
    wire.disk_stuck_after_ns = welcome.disk->stuck_after.count();
  }
  wire.store_url_bytes = static_cast<uint16_t>(welcome.store_url.size());
  std::copy(welcome.store_url.begin(), welcome.store_url.end(), wire.store_url.begin());
  return to_bytes(wire);
}

Result<WelcomeMessage> decode_welcome(std::span<const std::byte> bytes) {
  TIERCEL_TRY_ASSIGN(const auto wire, read<WireWelcome>(bytes, MessageKind::kWelcome));
  TIERCEL_TRY_ASSIGN(SlotGeometry geometry, from_wire(wire.geometry));
  // Of the wire, so that fields beyond the counts are zero as well.
  if (digest_of(wire.geometry) != wire.geometry_digest ||
      geometry_digest(geometry) != wire.geometry_digest) {
    return Error(Code::kInvalid, "handshake: the slot geometry is not what its digest says");
  }
  WelcomeMessage welcome(std::move(geometry));
  welcome.worker.rank = wire.rank;
  welcome.worker.slice = {wire.slice_rank, wire.slice_rank_count};
  welcome.worker.name_space = wire.name_space;
  welcome.worker.writer_epoch = wire.writer_epoch;
  welcome.worker.verify = wire.verify == 1;
  welcome.worker.store_batch_max = wire.store_batch_max;
  welcome.ring_ops = wire.ring_ops;
  welcome.spin = Duration(wire.spin_ns);
  welcome.huge_pages = wire.huge_pages == 1;
  welcome.lock_memory = wire.lock_memory == 1;
  welcome.prefault = wire.prefault == 1;
  TIERCEL_TRY(check_flag("verify", wire.verify));
  TIERCEL_TRY(check_flag("huge_pages", wire.huge_pages));
  TIERCEL_TRY(check_flag("lock_memory", wire.lock_memory));
  TIERCEL_TRY(check_flag("prefault", wire.prefault));
  if (wire.reserved != decltype(wire.reserved){}) {
    return refuse("reserved field", wire.reserved[0], "0");
  }
  TIERCEL_TRY_ASSIGN(welcome.disk, disk_from_wire(wire));
  welcome.device_bytes = wire.device_bytes;
  for (size_t i = 0; i < wire.device_groups.size(); ++i) {
    const WireDeviceGroup& group = wire.device_groups[i];
    if (group.reserved != 0) return refuse("reserved field", group.reserved, "0");
    if (wire.device_bytes == 0 || i >= welcome.geometry.group_count()) {
      if (group.block_count == 0 && group.offset_bytes == 0) continue;
      return refuse("blocks of a device group that is not there", group.block_count, "0");
    }
    welcome.device_groups.push_back({group.offset_bytes, group.block_count});
  }
  if (wire.store_url_bytes > wire.store_url.size()) {
    return refuse("length of the store's URL", wire.store_url_bytes,
                  "0 to " + std::to_string(kStoreUrlBytesMax));
  }
  welcome.store_url.assign(wire.store_url.data(), wire.store_url_bytes);
  if (std::any_of(wire.store_url.begin() + wire.store_url_bytes, wire.store_url.end(),
                  [](char c) { return c != 0; })) {
    return Error(Code::kInvalid, "handshake: bytes behind the store's URL are not 0");
  }
  TIERCEL_TRY(check_welcome(welcome));
  return welcome;
}

std::vector<std::byte> encode_ready() { return to_bytes(begin<WireReady>(MessageKind::kReady)); }

Status decode_ready(std::span<const std::byte> bytes) {
  TIERCEL_TRY(read<WireReady>(bytes, MessageKind::kReady));
  return {};
}

std::vector<std::byte> encode_refusal(const Error& error) {
  auto wire = begin<WireRefusal>(MessageKind::kRefusal);
  wire.code = static_cast<uint8_t>(error.code());
  const size_t bytes = std::min(error.message().size(), wire.text.size());
  wire.text_bytes = static_cast<uint16_t>(bytes);
  std::copy_n(error.message().begin(), bytes, wire.text.begin());
  return to_bytes(wire);
}

}  // namespace tiercel
