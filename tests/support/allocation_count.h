// SPDX-License-Identifier: Apache-2.0
//
// A global operator new that counts, for tests of what is promised to allocate nothing. To be
// included by one file of a test program.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace {
thread_local size_t allocation_count = 0;
}  // namespace

// Not inlined: the compiler would see malloc and free through some pairs only and warn of a
// mismatch. The form that does not throw is replaced too, because sanitizers bring one that does
// not fit.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++allocation_count;
  return std::malloc(bytes);
}
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (void* memory = operator new(bytes, std::nothrow)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
