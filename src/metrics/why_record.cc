// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "tiercel/why.h"

namespace tiercel {

std::string_view to_string(WhyReason reason) {
  switch (reason) {
    case WhyReason::kNotCached:
      return "not_cached";
    case WhyReason::kStoreAbsent:
      return "store_absent";
    case WhyReason::kStoreNotAsked:
      return "store_not_asked";
    case WhyReason::kStoreFailed:
      return "store_failed";
    case WhyReason::kInFlight:
      return "in_flight";
    case WhyReason::kGroupMissing:
      return "group_missing";
    case WhyReason::kNoDeviceBlock:
      return "no_device_block";
    case WhyReason::kLoadFailed:
      return "load_failed";
    case WhyReason::kNoHostSpace:
      return "no_host_space";
    case WhyReason::kBehindGap:
      return "behind_gap";
    case WhyReason::kCleared:
      return "cleared";
    case WhyReason::kClosed:
      return "closed";
    case WhyReason::kNotWorthLoading:
      return "not_worth_loading";
    case WhyReason::kSaveNoSpace:
      return "save_no_space";
    case WhyReason::kSaveFailed:
      return "save_failed";
    case WhyReason::kSaveDropped:
      return "save_dropped";
    case WhyReason::kSaveParentGone:
      return "save_parent_gone";
    case WhyReason::kSaveFiltered:
      return "save_filtered";
    case WhyReason::kPutFailed:
      return "put_failed";
    case WhyReason::kPutDropped:
      return "put_dropped";
    case WhyReason::kDiskPutFailed:
      return "disk_put_failed";
    case WhyReason::kDiskPutDropped:
      return "disk_put_dropped";
    case WhyReason::kDiskSlotWithdrawn:
      return "disk_slot_withdrawn";
  }
  return "unknown";
}

void WhyRecord::add(WhySpan span) {
  if (span.count == 0) return;
  if (span_count > 0) {
    WhySpan& last = spans_storage[span_count - 1];
    if (last.reason == span.reason && last.code == span.code &&
        last.first + last.count == span.first) {
      last.count += span.count;
      return;
    }
  }
  if (span_count == kSpanCountMax) {
    truncated = true;
    return;
  }
  spans_storage[span_count++] = span;
}

namespace {

std::string milliseconds(Duration duration) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3f ms",
                std::chrono::duration<double, std::milli>(duration).count());
  return text.data();
}

std::string line_of(std::string_view name, const LoadChoice& choice) {
  if (!choice.made) return {};
  std::string text = "  " + std::string(name) + ": " + std::to_string(choice.blocks_chosen) +
                     " of " + std::to_string(choice.blocks_there) + " blocks behind block " +
                     std::to_string(choice.first_block) + " worth loading; expected " +
                     milliseconds(choice.load_expected) + " and " +
                     milliseconds(choice.prefill_expected) + " of prefill, " +
                     milliseconds(choice.recompute_expected) + " without loading";
  if (choice.measured) text += "; took " + milliseconds(choice.load_measured);
  return text + "\n";
}

}  // namespace

std::string WhyRecord::to_string() const {
  std::string text = "request " + std::to_string(request.value()) + ": " +
                     std::to_string(served_blocks) + " blocks served\n";
  for (const WhySpan& span : spans()) {
    text += "  blocks " + std::to_string(span.first) + " to " +
            std::to_string(span.first + span.count - 1) + ": " +
            std::string(tiercel::to_string(span.reason));
    if (span.code != Code::kOk) text += " (" + std::string(tiercel::to_string(span.code)) + ")";
    text += "\n";
  }
  if (!store_reason.empty()) text += "  store: " + std::string(store_reason.view()) + "\n";
  text += line_of("prefetch", prefetch_choice) + line_of("load", load_choice);
  if (truncated) text += "  … further reasons were not kept\n";
  return text;
}

}  // namespace tiercel
