// SPDX-License-Identifier: Apache-2.0
//
// Assertions for programming errors, on in every preset. Input from users, disks or networks never
// reaches one: it becomes a Status.
#pragma once

namespace tiercel {
[[noreturn]] void assertion_failed(const char* expression, const char* message, const char* file,
                                   int line);
}  // namespace tiercel

#define TIERCEL_ASSERT(expression, message) \
  (static_cast<bool>(expression)            \
       ? static_cast<void>(0)               \
       : ::tiercel::assertion_failed(#expression, message, __FILE__, __LINE__))
