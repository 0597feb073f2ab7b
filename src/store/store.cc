// SPDX-License-Identifier: Apache-2.0
#include "tiercel/store.h"

#include "store/store_items.h"

namespace tiercel {
namespace {

template <typename Spans>
size_t sum_of_sizes(const Spans& spans) {
  size_t bytes = 0;
  for (const auto& span : spans) bytes += span.size();
  return bytes;
}

template <typename Item>
bool has_usable_spans(const Item& item) {
  for (const auto& span : item.spans) {
    if (span.data() == nullptr && !span.empty()) return false;
  }
  return item.total_bytes() > 0;
}

}  // namespace

size_t StoreGetItem::total_bytes() const { return sum_of_sizes(spans); }
size_t StorePutItem::total_bytes() const { return sum_of_sizes(spans); }

bool is_well_formed(const ObjectKey& key) {
  // Only a default-made ObjectKey is not one: every other way to make it checks or writes all of
  // it.
  return key.text().front() != '\0';
}
bool is_well_formed(const StoreGetItem& item) {
  return is_well_formed(item.key) && has_usable_spans(item);
}
bool is_well_formed(const StorePutItem& item) {
  return is_well_formed(item.key) && has_usable_spans(item);
}

}  // namespace tiercel
