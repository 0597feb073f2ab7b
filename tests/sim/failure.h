// SPDX-License-Identifier: Apache-2.0
//
// How a check of the simulation says that a promise was broken.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace tiercel::sim {

// Thrown by whichever check fails, caught by whoever runs the steps.
struct SimFailure {
  std::string check;  // a word, such as "bytes" or "deadline"; two failures are alike if it agrees
  std::string message;
};

[[noreturn]] inline void fail(std::string check, std::string message) {
  throw SimFailure{std::move(check), std::move(message)};
}

// How often each thing was really met.
using Coverage = std::map<std::string, uint64_t>;

}  // namespace tiercel::sim
