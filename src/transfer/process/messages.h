// SPDX-License-Identifier: Apache-2.0
//
// The messages of the handshake between the control plane and the process of a rank: one datagram
// each, over a Unix socket that stays open as life line.
//
//   rank → control   hello: who I am, what I must have
//   control → rank   welcome: what you work on, with descriptors of all that is shared
//   rank → control   ready: I have checked and mapped it
//   either           refusal, in place of any of these: why not
//
// All fields are of fixed size, and every one is checked by the receiver. Both sides are of one
// machine, so numbers are in its byte order. Decoding gives kInvalid with the field, or the other
// side's own error if the message is a refusal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/disk.h"
#include "tiercel/status.h"

#include "base/unix_socket.h"
#include "key/sha256.h"
#include "tier/slot_geometry.h"
#include "transfer/rank_worker.h"

namespace tiercel {

inline constexpr size_t kStoreUrlBytesMax = 1024;
inline constexpr size_t kRefusalBytesMax = 512;
inline constexpr size_t kHandshakeBytesMax = kSocketMessageBytesMax;

struct HelloMessage {
  uint32_t rank = 0;
  std::optional<Namespace> name_space;  // nothing: any will do
};

// Where the blocks of one group stand in a device memfd.
struct DeviceGroupPlace {
  uint64_t offset_bytes = 0;
  uint32_t block_count = 0;
};

// Descriptors come with it in this order: channel, host memory, eventfd that wakes the rank,
// eventfd that announces completions; device memory if device_bytes > 0; data and metadata file of
// the disk tier if there is one.
struct WelcomeMessage {
  explicit WelcomeMessage(SlotGeometry slots) : geometry(std::move(slots)) {}

  SlotGeometry geometry;
  RankWorkerOptions worker;
  uint32_t ring_ops = 0;
  Duration spin{0};
  bool huge_pages = true;
  bool lock_memory = false;
  bool prefault = false;
  uint64_t device_bytes = 0;                    // 0: none
  std::vector<DeviceGroupPlace> device_groups;  // one for each group if there is a device
  std::string store_url;                        // empty: none
  // How the rank uses its files of the disk tier; what concerns the folder stays behind.
  std::optional<DiskConfig> disk;

  size_t fd_count() const;
};
inline constexpr size_t kWelcomeFdsMin = 4;

std::vector<std::byte> encode_hello(const HelloMessage& hello);
// `message` must be fit to be sent: see check_welcome.
std::vector<std::byte> encode_welcome(const WelcomeMessage& welcome);
std::vector<std::byte> encode_ready();
// The message of the error is cut to kRefusalBytesMax.
std::vector<std::byte> encode_refusal(const Error& error);

Result<HelloMessage> decode_hello(std::span<const std::byte> bytes);
Result<WelcomeMessage> decode_welcome(std::span<const std::byte> bytes);
Status decode_ready(std::span<const std::byte> bytes);

// What both sides check of a welcome: rank, slice, limits, and that each group's blocks lie within
// the device memory.
Status check_welcome(const WelcomeMessage& welcome);

// Names a geometry: equal digests, equal places of every slot on every rank.
Sha256Digest geometry_digest(const SlotGeometry& geometry);

}  // namespace tiercel
