// SPDX-License-Identifier: Apache-2.0
//
// What the fake CUDA runtime lets tests see and break (fake_cuda_runtime.cc).
#pragma once

#include <cstddef>
#include <cstdint>

namespace tiercel::testing {

// The n-th call from now on of a runtime function that can fail, and only that one, fails; 0 turns
// this off.
void fail_cuda_call(uint64_t n);
// Whether the call that was to fail has come.
bool cuda_call_has_failed();
// Operations that wait in streams: nobody has waited for them yet.
size_t waiting_cuda_operations();
// Streams, events, arrays and pins that have not been given back.
size_t cuda_resources_held();

}  // namespace tiercel::testing
