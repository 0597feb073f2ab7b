// SPDX-License-Identifier: Apache-2.0
//
// Domain tags: the first four bytes of everything that Tiercel hashes, so that no preimage of one
// kind can be taken for one of another kind. Four bytes, because a usual block's preimage must fit
// two SHA-256 compressions (docs/format.md).
#pragma once

#include <cstdint>
#include <string_view>

namespace tiercel {

class DomainTag {
 public:
  static constexpr size_t kBytes = 4;

  consteval explicit DomainTag(const char (&text)[kBytes + 1])
      : text_{text[0], text[1], text[2], text[3]} {}
  constexpr std::string_view text() const { return {text_, kBytes}; }

 private:
  char text_[kBytes];
};

inline constexpr DomainTag kKeyDocumentTag("TCKD");
inline constexpr DomainTag kRootTag("TCRT");
inline constexpr DomainTag kBlockKeyTag("TCBK");
inline constexpr DomainTag kPartialBlockKeyTag("TCPB");
inline constexpr DomainTag kForeignKeyTag("TCFK");

}  // namespace tiercel
