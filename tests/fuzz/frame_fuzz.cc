// SPDX-License-Identifier: Apache-2.0
//
// Frames: whatever decodes is written back to the same bytes; nothing else passes; a frame with one
// changed bit is corrupt.
#include <algorithm>
#include <array>

#include "tiercel/frame.h"

#include "base/checksum.h"
#include "fuzz_target.h"

namespace tiercel::fuzz {
namespace {

using FrameBytes = std::array<std::byte, kFrameBytes>;

void check_decoding(const FrameBytes& bytes) {
  const Result<Frame> frame = decode_frame(bytes);
  uint32_t checksum = 0;
  if (!frame) {
    require(frame.code() == Code::kCorrupt, "a frame that does not decode is corrupt");
    require(check_frame(bytes, Frame{}, &checksum) == Code::kCorrupt,
            "what does not decode is nobody's frame");
    return;
  }
  FrameBytes again;
  encode_frame(*frame, again);
  require(again == bytes, "a decoded frame is written as it was read");
  require(check_frame(bytes, *frame, &checksum) == Code::kOk, "a frame passes as itself");
  require(checksum == frame->checksum, "the promised checksum is that of the frame");
  Frame other = *frame;
  other.token_count ^= 1;
  require(check_frame(bytes, other, &checksum) == Code::kCorrupt, "another frame does not pass");
}

// The fuzzer cannot guess a checksum, so it gets one.
void seal(FrameBytes& bytes) {
  const uint32_t sum = crc32c(std::span(bytes).first<kFrameBytes - sizeof(uint32_t)>());
  for (size_t i = 0; i < sizeof(sum); ++i) {
    bytes[kFrameBytes - sizeof(sum) + i] = static_cast<std::byte>(sum >> (8 * i));
  }
}

void check_flip(FrameBytes bytes, size_t bit) {
  if (!decode_frame(bytes)) return;
  bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  require(!decode_frame(bytes), "one changed bit makes a frame corrupt");
}

}  // namespace
}  // namespace tiercel::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tiercel::fuzz;  // NOLINT: the one function of this program
  Input input({data, size});
  const size_t bit = input.u16() % (tiercel::kFrameBytes * 8);
  FrameBytes bytes;
  input.fill(bytes);
  check_decoding(bytes);
  seal(bytes);
  check_decoding(bytes);
  check_flip(bytes, bit);
  return 0;
}
