// SPDX-License-Identifier: Apache-2.0
//
// tiercel-crash-writer: writes blocks to a disk tier and says which are on disk, to be killed at
// any moment; and, as a fresh process, reads back all that there is and compares every byte.
//
//   tiercel-crash-writer write|read PATH BYTES SYNC IO POLICY RANKS HOST_BLOCKS FIRST_PROMPT
//                        PROMPTS SEED
//
// Known prompts stand on standard input, "PROMPT BLOCKS" a line. What it says, a line each:
//
//   open                  the cache is open
//   save PROMPT BLOCKS    so many blocks of the prompt will be saved
//   disk PROMPT BLOCKS    so many leading blocks are on disk now; fewer than before: evicted
//   read PROMPT OFFERED LOADED WRONG [WHY]
//   closing, closed
//   error TEXT            it ends with 1
#include <charconv>
#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include "base/random.h"
#include "crash/disk_rig.h"

namespace tiercel::testing {
namespace {

struct Prompt {
  uint64_t number = 0;
  uint32_t blocks = 0;
  uint32_t on_disk = UINT32_MAX;  // as last told
};

// At once and whole: a pipe keeps what was written when its writer is killed.
void say(const std::string& lines) {
  if (lines.empty()) return;
  if (::write(STDOUT_FILENO, lines.data(), lines.size()) != static_cast<ssize_t>(lines.size())) {
    ::_exit(2);
  }
}

std::string words(std::string_view verb, std::initializer_list<uint64_t> numbers) {
  std::string line(verb);
  for (const uint64_t number : numbers) line += " " + std::to_string(number);
  return line + "\n";
}

class Program {
 public:
  Program(DiskRig& rig, std::vector<Prompt> prompts) : rig_(rig), prompts_(std::move(prompts)) {}

  void tell_what_is_on_disk() {
    std::string lines;
    for (Prompt& prompt : prompts_) {
      const uint32_t now = rig_.on_disk(prompt.number, prompt.blocks);
      if (now != prompt.on_disk) lines += words("disk", {prompt.number, now});
      prompt.on_disk = now;
    }
    say(lines);
  }

  Status read(const Prompt& prompt) {
    TIERCEL_TRY_ASSIGN(const RigRead read, rig_.read(prompt.number, prompt.blocks));
    const std::string line = words("read", {prompt.number, read.offered, read.loaded, read.wrong});
    say(read.why.empty() ? line : line.substr(0, line.size() - 1) + " " + read.why + "\n");
    return {};
  }

  Status read_all() {
    for (const Prompt& prompt : prompts_) TIERCEL_TRY(read(prompt));
    return {};
  }

  Status write(uint64_t first, uint64_t count, Random random) {
    rig_.on_poll([this] { tell_what_is_on_disk(); });
    for (uint64_t i = 0; i < count; ++i) {
      Prompt& prompt = prompts_.emplace_back();
      prompt.number = first + i;
      prompt.blocks = static_cast<uint32_t>(random.between(1, kPromptBlocksMax));
      say(words("save", {prompt.number, prompt.blocks}));
      TIERCEL_TRY(rig_.save(prompt.number, prompt.blocks));
      if (random.chance(0.2)) TIERCEL_TRY(read(prompts_[random.below(prompts_.size())]));
      if (random.chance(0.5)) TIERCEL_TRY(rig_.settle());
    }
    return rig_.settle();
  }

 private:
  DiskRig& rig_;
  std::vector<Prompt> prompts_;
};

uint64_t number(std::string_view text) {
  uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// Of the values of a kind that have names, the one of that name; the last if there is none.
template <typename Kind>
Kind named(std::string_view name, std::initializer_list<Kind> kinds) {
  for (const Kind kind : kinds) {
    if (to_string(kind) == name) return kind;
  }
  return *(kinds.end() - 1);
}

Status run(const std::vector<std::string_view>& arguments) {
  RigOptions options;
  options.disk.path = arguments[1];
  options.disk.bytes = number(arguments[2]);
  options.disk.sync = named(arguments[3], {DiskSync::kData, DiskSync::kInterval, DiskSync::kNone});
  options.disk.sync_interval = std::chrono::milliseconds(2);
  options.disk.io = named(arguments[4], {DiskIoWay::kUring, DiskIoWay::kThreads, DiskIoWay::kAuto});
  options.policy = named(arguments[5], {WritePolicy::kWriteBack, WritePolicy::kWriteThrough});
  options.ranks = static_cast<uint32_t>(number(arguments[6]));
  options.host_blocks = static_cast<uint32_t>(number(arguments[7]));

  std::vector<Prompt> prompts;
  for (Prompt prompt; std::cin >> prompt.number >> prompt.blocks;) prompts.push_back(prompt);

  TIERCEL_TRY_ASSIGN(const std::unique_ptr<DiskRig> rig, DiskRig::open(options));
  Program program(*rig, std::move(prompts));
  if (arguments[0] == "write") program.tell_what_is_on_disk();
  say("open\n");
  if (arguments[0] == "write") {
    TIERCEL_TRY(
        program.write(number(arguments[8]), number(arguments[9]), Random(number(arguments[10]))));
  } else {
    TIERCEL_TRY(program.read_all());
  }
  say("closing\n");
  TIERCEL_TRY(rig->close());
  say("closed\n");
  return {};
}

}  // namespace
}  // namespace tiercel::testing

int main(int count, char** values) {
  if (count != 12) {
    std::fputs("tiercel-crash-writer: see tests/crash/crash_writer.cc\n", stderr);
    return 2;
  }
  const tiercel::Status status = tiercel::testing::run({values + 1, values + count});
  if (status) return 0;
  tiercel::testing::say("error " + status.error().to_string() + "\n");
  return 1;
}
