// SPDX-License-Identifier: Apache-2.0
//
// Kill at any moment: a writer fills a disk tier and says what is on disk, is killed with SIGKILL
// at a random moment (while it opens and while it closes too), and a fresh process reads back all
// that is offered. Nothing that comes back may be wrong, and what was said to be on disk must be
// there, unless it had to give way since.
//
//   TIERCEL_CRASH_ROUNDS   kills (48); scripts/crash-disk does a thousand
//   TIERCEL_CRASH_SEED     of the choices (1); the kills themselves follow the clock
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <sstream>

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "crash/folder_files.h"
#include "crash/writer_process.h"
#include "support/temp_folder.h"
#include "tier/disk/disk_format.h"

namespace tiercel::testing {
namespace {

constexpr uint64_t kLivesOfAFolder = 3;
constexpr uint64_t kPromptsOfALife = 32;
constexpr uint32_t kHostBlocks = 64;
// A quarter of the host tier may be on its way to disk at once.
constexpr uint64_t kPutsMax = kHostBlocks / 4;
constexpr uint64_t kRoomyBytes = uint64_t{32} << 20;    // for all that a folder's lives write
constexpr uint64_t kNarrowBytes = uint64_t{512} << 10;  // far less than one life writes

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

struct Variant {
  std::string sync, io, policy;
  uint32_t ranks = 1;
  bool is_narrow = false;  // blocks give way all the time

  uint64_t bytes() const { return (is_narrow ? kNarrowBytes : kRoomyBytes) * ranks; }
  std::string text() const {
    return sync + " " + io + " " + policy + ", " + std::to_string(ranks) + " ranks, " +
           (is_narrow ? "narrow" : "roomy");
  }
};

std::vector<Variant> all_variants() {
  std::vector<Variant> variants;
  for (const char* sync : {"none", "data", "interval"}) {
    for (const char* io : {"io_uring", "threads"}) {
      for (const char* policy : {"write_through", "write_back"}) {
        for (const uint32_t ranks : {1u, 2u}) {
          for (const bool is_narrow : {false, true}) {
            variants.push_back({sync, io, policy, ranks, is_narrow});
          }
        }
      }
    }
  }
  return variants;
}

struct Totals {
  uint64_t rounds = 0, killed = 0, killed_before_open = 0, killed_while_closing = 0;
  uint64_t acknowledged = 0;  // blocks that were on disk, as last told before the kill
  uint64_t found = 0;         // of these
  uint64_t read = 0;          // blocks that were compared
  uint64_t wrong = 0;
  uint64_t torn = 0;  // offered, but their bytes were not there any more: misses
};

// One folder, over several lives of its writer.
class KilledFolder {
 public:
  KilledFolder(const Variant& variant, Random& random, Totals& totals)
      : variant_(variant), random_(random), totals_(totals) {}

  void live_and_die(bool by_force = true) {
    write_known();
    WriterProcess writer(arguments("write", totals_.rounds * kPromptsOfALife), known_path());
    is_open_ = is_closing_ = false;
    std::optional<WriterProcess::Time> kill_at;
    uint64_t lines_left = UINT64_MAX;
    bool at_closing = false;
    switch (by_force ? random_.below(4) : 3) {
      case 0:  // most of it is the start of the program and the opening
        kill_at = soon(20'000);
        break;
      case 1:
        at_closing = true;
        break;
      default:
        lines_left = random_.between(1, 2 * kPromptsOfALife);
    }
    const bool is_killed =
        writer.run(kill_at, [&](std::string_view line) -> std::optional<WriterProcess::Time> {
          take(line, "writer");
          if (!by_force) return std::nullopt;
          if (line == "closing") return at_closing ? soon(1'000) : soon(100'000);
          if (--lines_left != 0) return std::nullopt;
          return soon(1'500);
        });
    ++totals_.rounds;
    totals_.killed += is_killed;
    totals_.killed_before_open += is_killed && !is_open_;
    totals_.killed_while_closing += is_killed && is_closing_;
    if (!is_killed) {
      EXPECT_EQ(writer.end(), 0);
    }
  }

  const std::string& path() const { return path_; }

  void read_back() {
    write_known();
    // As if nothing had been offered, for what the reader does not name.
    std::map<uint64_t, Prompt> before = prompts_;
    for (auto& [prompt, state] : prompts_) state.on_disk = 0;
    is_reading_ = true;
    WriterProcess reader(arguments("read", 0), known_path());
    reader.run(std::nullopt, [&](std::string_view line) -> std::optional<WriterProcess::Time> {
      take(line, "reader");
      return std::nullopt;
    });
    is_reading_ = false;
    ASSERT_EQ(reader.end(), 0) << variant_.text();
    uint64_t lost = 0, on_its_way = 0;
    for (const auto& [prompt, state] : before) {
      const uint32_t found = std::min(prompts_[prompt].on_disk, state.on_disk);
      totals_.acknowledged += state.on_disk;
      totals_.found += found;
      lost += state.on_disk - found;
      on_its_way += state.blocks - state.on_disk;
    }
    // What gives way does so for a block that comes; of the last ones nobody was told.
    const uint64_t gone_since = variant_.is_narrow ? std::min(on_its_way, kPutsMax) : 0;
    EXPECT_LE(lost, gone_since) << variant_.text();
    check_files();
  }

 private:
  struct Prompt {
    uint32_t blocks = 0;
    uint32_t on_disk = 0;
  };

  WriterProcess::Time soon(uint64_t microseconds_max) {
    return std::chrono::steady_clock::now() +
           std::chrono::microseconds(random_.below(microseconds_max));
  }

  std::string known_path() const { return temp_.path("known"); }
  void write_known() {
    std::ofstream file(known_path());
    for (const auto& [prompt, state] : prompts_) file << prompt << " " << state.blocks << "\n";
  }

  std::vector<std::string> arguments(const std::string& what, uint64_t first) {
    return {what,
            path_,
            std::to_string(variant_.bytes()),
            variant_.sync,
            variant_.io,
            variant_.policy,
            std::to_string(variant_.ranks),
            std::to_string(kHostBlocks),
            std::to_string(first),
            std::to_string(kPromptsOfALife),
            std::to_string(random_.next())};
  }

  void take(std::string_view line, std::string_view who) {
    std::istringstream words{std::string(line)};
    std::string verb;
    words >> verb;
    if (verb == "open") is_open_ = true;
    if (verb == "closing") is_closing_ = true;
    if (verb == "error") ADD_FAILURE() << who << " of " << variant_.text() << ": " << line;
    uint64_t prompt = 0;
    uint32_t blocks = 0;
    words >> prompt >> blocks;
    if (verb == "save") prompts_[prompt].blocks = blocks;
    if (verb == "disk") {
      if (!variant_.is_narrow) {
        EXPECT_GE(blocks, prompts_[prompt].on_disk) << line;
      }
      prompts_[prompt].on_disk = blocks;
    }
    if (verb != "read") return;
    uint32_t loaded = 0, wrong = 0;
    words >> loaded >> wrong;
    totals_.read += loaded;
    totals_.wrong += wrong;
    totals_.torn += is_reading_ ? blocks - loaded : 0;
    EXPECT_EQ(wrong, 0u) << who << " of " << variant_.text() << ": " << line;
    // Where nothing is written over, a record stands for a whole payload. (The writer's host tier
    // is narrow, so that its loads may be short of room.)
    if (is_reading_ && !variant_.is_narrow) {
      EXPECT_EQ(loaded, blocks) << line << ", " << variant_.text();
    }
    if (is_reading_) prompts_[prompt].on_disk = loaded;
  }

  // F36: whatever the crash has left is counted and used again: there are no other files, and those
  // that are there do not pass the bound.
  void check_files() {
    EXPECT_EQ(files_below(path_ + "/main"), files_of_ranks(variant_.ranks));
    EXPECT_LE(space_below(path_), variant_.bytes());
  }

  const Variant variant_;
  Random& random_;
  Totals& totals_;
  TempFolder temp_;
  const std::string path_ = temp_.path("disk");
  std::map<uint64_t, Prompt> prompts_;
  bool is_open_ = false, is_closing_ = false, is_reading_ = false;
};

TEST(DiskKill, F36AKilledWriterLosesNothingThatWasOnDiskAndNothingComesBackWrong) {
  const uint64_t rounds = number_from("TIERCEL_CRASH_ROUNDS", 48);
  const uint64_t seed = number_from("TIERCEL_CRASH_SEED", 1);
  Random random(seed);
  std::vector<Variant> variants = all_variants();
  Totals totals;
  for (size_t next = variants.size(); totals.rounds < rounds; ++next) {
    if (next == variants.size()) {
      next = 0;
      for (size_t i = variants.size() - 1; i > 0; --i) {
        std::swap(variants[i], variants[random.below(i + 1)]);
      }
    }
    KilledFolder folder(variants[next], random, totals);
    for (uint64_t life = 0; life < kLivesOfAFolder && totals.rounds < rounds; ++life) {
      folder.live_and_die();
      folder.read_back();
      if (::testing::Test::HasFailure()) {
        FAIL() << "in round " << totals.rounds << " of seed " << seed;
      }
    }
  }
  std::printf(
      "%llu rounds, %llu killed (%llu before it was open, %llu while it closed), %llu blocks "
      "acknowledged, %llu found, %llu read, %llu wrong, %llu torn\n",
      static_cast<unsigned long long>(totals.rounds),
      static_cast<unsigned long long>(totals.killed),
      static_cast<unsigned long long>(totals.killed_before_open),
      static_cast<unsigned long long>(totals.killed_while_closing),
      static_cast<unsigned long long>(totals.acknowledged),
      static_cast<unsigned long long>(totals.found), static_cast<unsigned long long>(totals.read),
      static_cast<unsigned long long>(totals.wrong), static_cast<unsigned long long>(totals.torn));
  EXPECT_GE(totals.found * 100, totals.acknowledged * 99);
  // Else it has shown nothing.
  EXPECT_GT(totals.killed, rounds / 2);
  EXPECT_GT(totals.acknowledged, rounds);
}

// The rounds above see what is lost: here, all records.
TEST(DiskKill, ALossIsSeen) {
  Random random(1);
  Totals totals;
  KilledFolder folder({"none", "threads", "write_through"}, random, totals);
  folder.live_and_die(false);
  folder.read_back();
  EXPECT_GT(totals.acknowledged, 0u);
  EXPECT_EQ(totals.found, totals.acknowledged);
  std::filesystem::resize_file(folder.path() + "/main/rank0/metadata", 2 * kDiskHeaderBytes);
  EXPECT_NONFATAL_FAILURE(folder.read_back(), "lost");
}

}  // namespace
}  // namespace tiercel::testing
