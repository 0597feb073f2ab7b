// SPDX-License-Identifier: Apache-2.0
//
// The subcommands of the tool, without the command line around them.
#pragma once

#include <atomic>
#include <ostream>

#include "tiercel/clock.h"

#include "base/memory_limit.h"
#include "cli/option_sources.h"

namespace tiercel {

// Exit statuses of the tool.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;   // a mismatch, or the run could not go on
inline constexpr int kExitRefused = 2;  // options or trace; nothing was started
inline constexpr int kExitInterrupted =
    130;  // the user stopped it; figures up to there were printed

// The world as a command sees it.
struct CommandContext {
  std::ostream& out;
  std::ostream& error;
  bool error_is_terminal = false;
  const Clock& clock;
  const char* const* environment = nullptr;
  MemoryLimit memory = available_memory();
  const std::atomic<bool>* stop = nullptr;
  // The command sets it once there will be figures to print. Until then it does not look at `stop`,
  // and may be waiting for its input: who stops it may end the process.
  std::atomic<bool>* started = nullptr;
};

// docs/replay.md
int run_replay_command(const CommandLineOptions& command_line, const CommandContext& context);

// docs/performance.md
int run_bench_command(const CommandLineOptions& command_line, const CommandContext& context);

// docs/operations.md: looks at a disk tier; reads and checks all of it.
int run_inspect_command(const CommandLineOptions& command_line, const CommandContext& context);
int run_verify_command(const CommandLineOptions& command_line, const CommandContext& context);

// Every store and wrapper of this build with its options, as text.
int run_stores_command(const CommandContext& context);

// docs/mooncake.md: tries a store, says what is wrong with it and how fast it is.
int run_store_check_command(const CommandLineOptions& command_line, const CommandContext& context);

// docs/mooncake.md: gives memory of this node to a store until it is stopped.
int run_store_serve_command(const CommandLineOptions& command_line, const CommandContext& context);

int run_version_command(const CommandContext& context);

}  // namespace tiercel
