// SPDX-License-Identifier: Apache-2.0
//
// Strong identifiers: numbers that name things and must not be mixed up.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace tiercel {

// A number of type Rep that names one kind of thing. Ordered and hashable; no arithmetic.
template <typename Tag, typename Rep>
class Id {
 public:
  using rep = Rep;
  constexpr Id() = default;
  constexpr explicit Id(Rep value) : value_(value) {}
  constexpr Rep value() const { return value_; }
  friend constexpr auto operator<=>(Id, Id) = default;

 private:
  Rep value_ = 0;
};

// A request of the engine; chosen by the engine, may be used again once the request has ended.
using RequestId = Id<struct RequestIdTag, uint64_t>;
// A unit of work of the data plane; chosen by Cache, never used twice.
using JobId = Id<struct JobIdTag, uint64_t>;
// Place of one slice in a host or disk tier: the same id on all ranks. See tier/slot_geometry.h.
using SlotId = Id<struct SlotIdTag, uint32_t>;
// A block of device memory, as the engine numbers them within one group.
using DeviceBlockId = Id<struct DeviceBlockIdTag, uint32_t>;
// A group of layers that share one kind of attention: index into KvSpec::groups.
using GroupId = Id<struct GroupIdTag, uint8_t>;

inline constexpr uint32_t kGroupCountMax = 8;
inline constexpr uint32_t kRankCountMax = 64;

}  // namespace tiercel

template <typename Tag, typename Rep>
struct std::hash<tiercel::Id<Tag, Rep>> {
  size_t operator()(tiercel::Id<Tag, Rep> id) const noexcept {
    return std::hash<Rep>{}(id.value());
  }
};
