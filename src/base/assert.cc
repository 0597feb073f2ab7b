// SPDX-License-Identifier: Apache-2.0
#include "base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace tiercel {

void assertion_failed(const char* expression, const char* message, const char* file, int line) {
  // One fprintf to the unbuffered standard error: nothing here may depend on state that could be
  // what is broken.
  std::fprintf(stderr, "%s:%d: assertion failed: %s (%s)\n", file, line, message, expression);
  std::abort();
}

}  // namespace tiercel
