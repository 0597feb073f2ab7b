// SPDX-License-Identifier: Apache-2.0
//
// Headers and records for the tests of the disk tier: a fixed sample of each, and arbitrary ones
// from a seed.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/random.h"
#include "key/samples.h"
#include "tier/disk/disk_format.h"

namespace tiercel::testing {

inline void fill_random(Random& random, std::span<std::byte> bytes) {
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.below(256));
}

inline DiskFolderId sample_folder_id(uint8_t first = 1) {
  DiskFolderId id;
  for (size_t i = 0; i < id.size(); ++i) id[i] = static_cast<std::byte>(first + i);
  return id;
}

inline DiskHeader sample_disk_header() {
  DiskHeader header;
  header.kind = DiskFileKind::kMetadata;
  header.folder_id = sample_folder_id();
  header.rank = 1;
  header.rank_count = 4;
  header.payload_bytes = {1 << 20, 4096, 100};
  header.slots_per_extent = {4, 512, 1024};
  header.extent_count = 192;
  header.generation = 7;
  header.first_sequence = 99;
  return header;
}

inline DiskHeader random_disk_header(Random& random) {
  DiskHeader header;
  header.kind = random.chance(0.5) ? DiskFileKind::kData : DiskFileKind::kMetadata;
  fill_random(random, header.folder_id);
  header.rank_count = static_cast<uint32_t>(random.between(1, kRankCountMax));
  header.rank = static_cast<uint32_t>(random.below(header.rank_count));
  for (uint64_t group = random.between(1, kGroupCountMax); group > 0; --group) {
    header.payload_bytes.push_back(random.between(1, UINT64_MAX));
    header.slots_per_extent.push_back(static_cast<uint32_t>(random.between(1, UINT32_MAX)));
  }
  header.extent_count = static_cast<uint32_t>(random.between(1, UINT32_MAX));
  header.last_extent_slots = static_cast<uint32_t>(random.next());
  if (header.kind == DiskFileKind::kMetadata) {
    header.generation = random.next();
    header.first_sequence = random.next();
  }
  return header;
}

inline DiskRecord sample_disk_record() {
  DiskRecord record;
  record.slot = SlotId(5);
  record.group = GroupId(2);
  record.slice = Slice{1, 4};
  record.token_count = 16;
  record.sequence = 1234;
  record.written_unix_s = 1800000000;
  record.stored_bytes = 4096;
  record.raw_bytes = 4096;
  record.payload_checksum = 0xdeadbeef;
  record.name_space = digest_of<Namespace>("namespace");
  record.key = digest_of<BlockKey>("block");
  record.parent = digest_of<BlockKey>("parent");
  return record;
}

inline DiskRecord random_disk_record(Random& random) {
  DiskRecord record;
  record.slot = SlotId(static_cast<uint32_t>(random.next()));
  record.group = GroupId(static_cast<uint8_t>(random.below(256)));
  record.slice = Slice{static_cast<uint16_t>(random.next()), static_cast<uint16_t>(random.next())};
  record.token_count = static_cast<uint32_t>(random.next());
  record.sequence = random.next();
  record.written_unix_s = static_cast<int64_t>(random.next());
  record.stored_bytes = random.next();
  record.raw_bytes = random.next();
  record.payload_checksum = static_cast<uint32_t>(random.next());
  fill_random(random, record.name_space.bytes);
  fill_random(random, record.key.bytes);
  if (random.chance(0.5)) fill_random(random, record.parent.emplace().bytes);
  return record;
}

}  // namespace tiercel::testing
