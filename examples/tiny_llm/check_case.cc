// SPDX-License-Identifier: Apache-2.0
#include "tiny_llm/check_case.h"

#include <array>

namespace tiercel::tiny {
namespace {

// A chunk that is no multiple of a block: blocks fill over several steps.
constexpr uint32_t kOddChunk = 5;
// Of the largest request and little more, so that requests beside each other do not fit.
constexpr uint32_t kTightPool = 20;
// What the waves need together, so that nothing stays on the device for long.
constexpr uint32_t kSmallPool = 32;

constexpr std::array kCases = {
    CheckCase{.name = "nothing shared", .share = false},
    CheckCase{.name = "nothing shared, odd chunks", .share = false, .chunk_tokens = kOddChunk},
    CheckCase{.name = "device", .wants_device_hits = true},
    CheckCase{.name = "device, odd chunks", .chunk_tokens = kOddChunk, .wants_device_hits = true},
    CheckCase{.name = "device, preemption", .device_blocks = kTightPool, .wants_preemptions = true},
    CheckCase{.name = "+ host", .host = true, .device_blocks = kSmallPool, .wants_loads = true},
    CheckCase{.name = "+ host, preemption",
              .host = true,
              .device_blocks = kTightPool,
              .wants_loads = true,
              .wants_preemptions = true},
    CheckCase{.name = "+ host, aborts",
              .host = true,
              .device_blocks = kSmallPool,
              .chunk_tokens = kOddChunk,
              .aborts = true,
              .wants_loads = true},
    CheckCase{.name = "+ host, device lost",
              .host = true,
              .chunk_tokens = kOddChunk,
              .loses_device = true,
              .wants_loads = true,
              .wants_preemptions = true},
    CheckCase{.name = "+ disk, restart",
              .host = true,
              .disk = true,
              .device_blocks = kSmallPool,
              .host_blocks = 24,
              .turn = CheckTurn::kRestart,
              .wants_loads = true,
              .wants_disk = true},
    CheckCase{.name = "+ store, two engines",
              .host = true,
              .store = true,
              .device_blocks = kSmallPool,
              .turn = CheckTurn::kSecondEngine,
              .wants_loads = true,
              .wants_store = true},
    CheckCase{.name = "+ store with faults",
              .host = true,
              .store = true,
              .device_blocks = kSmallPool,
              .turn = CheckTurn::kSecondEngine,
              .faulty_store = true,
              .wants_loads = true,
              .wants_store = true},
    CheckCase{.name = "all of it",
              .host = true,
              .disk = true,
              .store = true,
              .device_blocks = kTightPool,
              .host_blocks = 24,
              .chunk_tokens = kOddChunk,
              .turn = CheckTurn::kRestart,
              .aborts = true,
              .save_preempted = false,
              .wants_device_hits = true,
              .wants_loads = true,
              .wants_disk = true},
    CheckCase{.name = "+ store, prefill and decode",
              .host = true,
              .store = true,
              .roles = true,
              .wants_loads = true,
              .wants_store = true},
    CheckCase{.name = "new weights",
              .host = true,
              .turn = CheckTurn::kNewWeights,
              .wants_device_hits = true},
    CheckCase{.name = "+ disk, new weights",
              .host = true,
              .disk = true,
              .turn = CheckTurn::kRestartWeights,
              .wants_device_hits = true},
};

}  // namespace

std::span<const CheckCase> check_cases() { return kCases; }

}  // namespace tiercel::tiny
