// SPDX-License-Identifier: Apache-2.0
//
// StoreReason: why operations of a rank's store failed last, in the store's words, as
// DataPlane::store_reason has it.
//
// Threads: the rank worker's.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "tiercel/clock.h"
#include "tiercel/health.h"
#include "tiercel/store.h"
#include "tiercel/transfer.h"

namespace tiercel {

class StoreReason {
 public:
  // Asks the store, which still knows; not at each failure of many.
  void note_failure(const Store& store, OpKind kind, Code code, TimePoint now) {
    if (is_current_ && now < asked_at_ + kEvery) return;
    is_current_ = true;
    asked_at_ = now;
    std::string words = store.state();
    if (words == "ok") {
      words = std::string(to_string(kind)) + " ended as " + std::string(to_string(code));
    }
    set(words);
  }
  // Whoever reads it from now on must not take it for what is wrong now.
  void note_success() {
    if (!is_current_) return;
    is_current_ = false;
    set("earlier: " + std::string(text_.view()));
  }

  const ReasonText& text() const { return text_; }
  // Rises with each change.
  uint64_t changes() const { return changes_; }

 private:
  static constexpr Duration kEvery = std::chrono::milliseconds(50);

  void set(std::string_view words) {
    text_ = ReasonText::of(words);
    ++changes_;
  }

  ReasonText text_;
  uint64_t changes_ = 0;
  bool is_current_ = false;  // nothing has succeeded since
  TimePoint asked_at_;
};

}  // namespace tiercel
