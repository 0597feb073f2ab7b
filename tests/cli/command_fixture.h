// SPDX-License-Identifier: Apache-2.0
//
// What a command of the tool is run with in a test: its output is text, its clock and memory are
// real.
#pragma once

#include <atomic>
#include <sstream>

#include <gtest/gtest.h>

#include "cli/commands.h"
#include "support/temp_folder.h"

namespace tiercel {

class CommandTest : public ::testing::Test {
 protected:
  // `command` is run_replay_command or another of its kind; what an earlier run wrote is forgotten.
  template <typename Command>
  int run_command(Command&& command, const CommandLineOptions& options) {
    out_.str("");
    error_.str("");
    const CommandContext context{.out = out_,
                                 .error = error_,
                                 .error_is_terminal = false,
                                 .clock = clock_,
                                 .environment = nullptr,
                                 .memory = memory_,
                                 .stop = &stop_};
    return command(options, context);
  }

  const SystemClock clock_;
  MemoryLimit memory_ = available_memory();
  std::atomic<bool> stop_{false};
  std::ostringstream out_, error_;
  testing::TempFolder folder_;
};

}  // namespace tiercel
