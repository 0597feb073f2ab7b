// SPDX-License-Identifier: Apache-2.0
//
// Headers of the disk tier's files: whatever decodes is written back to the same bytes, names a
// geometry that can be, and is none with one changed bit. An input is the beginning of a page; the
// rest of it is zero, but for two bytes at a place of their own.
#include <array>

#include "base/checksum.h"
#include "fuzz_target.h"
#include "tier/disk/disk_format.h"

namespace tiercel::fuzz {
namespace {

using HeaderBytes = std::array<std::byte, kDiskHeaderBytes>;

void check_decoding(const HeaderBytes& bytes) {
  const Result<DiskHeader> header = decode_disk_header(bytes);
  if (!header) {
    require(header.code() == Code::kNotFound || header.code() == Code::kUnsupported ||
                header.code() == Code::kCorrupt,
            "what does not decode is none yet, of another version, or corrupt");
    return;
  }
  HeaderBytes again;
  encode_disk_header(*header, again);
  require(again == bytes, "a decoded header is written as it was read");
  require(header->rank < header->rank_count && header->rank_count <= kRankCountMax,
          "the rank is one of those that can be");
  require(!header->payload_bytes.empty() && header->payload_bytes.size() <= kGroupCountMax &&
              header->slots_per_extent.size() == header->payload_bytes.size(),
          "the groups are those that can be");
}

// The fuzzer cannot guess a checksum, so it gets one.
void seal(HeaderBytes& bytes) {
  const uint32_t sum = crc32c(std::span(bytes).first<kDiskHeaderBytes - sizeof(uint32_t)>());
  for (size_t i = 0; i < sizeof(sum); ++i) {
    bytes[kDiskHeaderBytes - sizeof(sum) + i] = static_cast<std::byte>(sum >> (8 * i));
  }
}

void check_flip(HeaderBytes bytes, size_t bit) {
  if (!decode_disk_header(bytes)) return;
  bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  require(!decode_disk_header(bytes), "one changed bit makes a header none");
}

}  // namespace
}  // namespace tiercel::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tiercel::fuzz;  // NOLINT: the one function of this program
  Input input({data, size});
  const size_t bit = input.u16() % (tiercel::kDiskHeaderBytes * 8);
  const size_t place = input.u16() % tiercel::kDiskHeaderBytes;
  const auto change = static_cast<std::byte>(input.byte());
  HeaderBytes bytes;
  input.fill(bytes);
  bytes[place] ^= change;
  check_decoding(bytes);
  seal(bytes);
  check_decoding(bytes);
  check_flip(bytes, bit);
  return 0;
}
