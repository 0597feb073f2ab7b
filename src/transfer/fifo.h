// SPDX-License-Identifier: Apache-2.0
//
// Fifo: a queue that allocates only to become larger than it ever was, unlike std::deque.
//
// Threads: one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

namespace tiercel {

template <typename T>
class Fifo {
  static_assert(std::is_trivially_copyable_v<T>, "moved about as plain values");

 public:
  bool empty() const { return begin_ == items_.size(); }
  size_t size() const { return items_.size() - begin_; }
  const T& operator[](size_t index) const { return items_[begin_ + index]; }

  void push(const T& item) {
    // Half of the memory is behind us: moving the rest costs less than what was popped since.
    if (items_.size() == items_.capacity() && begin_ * 2 >= items_.size()) compact();
    items_.push_back(item);
  }

  // Drops the oldest `count` <= size() items.
  void pop(size_t count) {
    begin_ += count;
    if (empty()) clear();
  }

  // Copies out and drops up to out.size() items, oldest first; how many.
  size_t take(std::span<T> out) {
    const size_t count = std::min(size(), out.size());
    std::copy_n(items_.begin() + static_cast<std::ptrdiff_t>(begin_), count, out.begin());
    pop(count);
    return count;
  }

  // Drops every item for which `predicate` is true; the others keep their order.
  template <typename Predicate>
  void remove_if(Predicate predicate) {
    compact();
    items_.erase(std::remove_if(items_.begin(), items_.end(), predicate), items_.end());
  }

  void clear() {
    items_.clear();
    begin_ = 0;
  }

 private:
  void compact() {
    items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(begin_));
    begin_ = 0;
  }

  std::vector<T> items_;
  size_t begin_ = 0;
};

}  // namespace tiercel
