// SPDX-License-Identifier: Apache-2.0
//
// A target that is broken on purpose: a fuzzer that does not find this finds nothing. Four bytes
// must be right one after the other, so chance does not do it; and what is wrong then is a read
// behind the end, so it takes the address sanitizer to see it (elsewhere the check below fails).
#include <vector>

#include "fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  if (data[0] != 'b' || data[1] != 'i' || data[2] != 'r' || data[3] != 'd') return 0;
#if defined(__SANITIZE_ADDRESS__) || defined(TIERCEL_SANITIZED)
  const std::vector<uint8_t> copy(data, data + size);
  const volatile uint8_t* behind = copy.data() + size;
  static_cast<void>(*behind);
#endif
  tiercel::fuzz::require(false, "the canary");
  return 0;
}
