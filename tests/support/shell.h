// SPDX-License-Identifier: Apache-2.0
//
// Programs as a user runs them, through a shell.
#pragma once

#include <array>
#include <cstdio>
#include <string>

#include <sys/wait.h>

namespace tiercel::testing {

struct Outcome {
  int status = -1;   // exit status; -1: ended by a signal, or could not be run
  std::string text;  // both outputs
};

inline Outcome run_shell(const std::string& command) {
  Outcome outcome;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer;
  while (const size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    outcome.text.append(buffer.data(), count);
  }
  const int status = ::pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

}  // namespace tiercel::testing
