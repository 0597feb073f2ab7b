// SPDX-License-Identifier: Apache-2.0
//
// Health of what can fail and is left alone for a while then (a store, a disk), as its guard sees
// it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "tiercel/status.h"

namespace tiercel {

// Whether a store is being asked at all, the more healthy the smaller. A store without a guard is
// always kUp.
enum class StoreCondition : uint8_t {
  kNone = 0,     // there is no store
  kUp = 1,       // it is asked
  kProbing = 2,  // a few operations find out whether it is back
  kOpen = 3,     // it failed and is left alone: everything ends as unavailable at once
};
// "none", "up", "open", "probing"
std::string_view to_string(StoreCondition condition);

// Trivially copyable: it crosses threads and processes as it is.
struct StoreHealth {
  StoreCondition condition = StoreCondition::kUp;
  Code cause = Code::kOk;  // why it is not up; kOk if it is
  uint64_t opened = 0;     // times that it was given up, ever
  uint64_t refused = 0;    // calls that ended without asking it, ever
};
// "up", "open (timeout)"
std::string to_string(const StoreHealth& health);

// Why something failed, in words, such as Store::state() has them. Of bounded length and trivially
// copyable, so that it crosses threads and processes; printable ASCII, whatever it was made of.
struct ReasonText {
  static constexpr size_t kBytesMax = 247;

  std::array<char, kBytesMax> bytes{};
  uint8_t size = 0;

  // What does not fit is cut, which "..." at the end shows; what is not printable becomes '?'.
  static ReasonText of(std::string_view text);
  std::string_view view() const { return {bytes.data(), size < kBytesMax ? size : kBytesMax}; }
  bool empty() const { return size == 0; }
  friend bool operator==(const ReasonText& a, const ReasonText& b) { return a.view() == b.view(); }
};
static_assert(std::is_trivially_copyable_v<ReasonText> && sizeof(ReasonText) == 248);

}  // namespace tiercel
