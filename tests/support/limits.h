// SPDX-License-Identifier: Apache-2.0
//
// Limits of the system, for tests in a child of their own: see child_process.h.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace tiercel::testing {

inline void set_limit(int resource, rlim_t value) {
  rlimit limit{};
  EXPECT_EQ(::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit), 0);
  limit.rlim_cur = value;
  EXPECT_EQ(::setrlimit(static_cast<__rlimit_resource_t>(resource), &limit), 0);
}

}  // namespace tiercel::testing
