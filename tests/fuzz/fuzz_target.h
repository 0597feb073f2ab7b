// SPDX-License-Identifier: Apache-2.0
//
// What a fuzz target is: one function that takes any bytes and checks what must hold for them.
//
// The same file is linked with libFuzzer (preset `fuzz`), which looks for bytes that break it, and
// with replay_main.cc (every other preset), which feeds it the committed corpus.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tiercel::fuzz {

// Says what was broken and ends the process, so that the fuzzer keeps the input.
void require(bool holds, std::string_view what);

// Takes an input apart from the front. Asking for more than there is gives zeros.
class Input {
 public:
  explicit Input(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  bool empty() const { return bytes_.empty(); }
  uint8_t byte();
  uint16_t u16();
  uint64_t u64();
  // Fills `out`, with zeros where the input ends.
  void fill(std::span<std::byte> out);
  // All that is left, as text.
  std::string_view rest() const;

 private:
  std::span<const uint8_t> bytes_;
};

}  // namespace tiercel::fuzz

// To be defined once a target; always returns 0.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
