// SPDX-License-Identifier: Apache-2.0
//
// `tiercel replay` as a process: signals, and a system that is short of memory.
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/commands.h"
#include "support/paths.h"
#include "support/shell.h"
#include "support/temp_folder.h"

namespace tiercel {
namespace {

const std::string kTrace = testing::source_path("data/conversation_trace.jsonl");

// The tool in the background, with /dev/null for standard output.
class Tool {
 public:
  Tool(std::vector<std::string> arguments, const std::string& error_path) {
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ != 0) return;
    if (std::freopen("/dev/null", "w", stdout) == nullptr) ::_exit(98);
    if (std::freopen(error_path.c_str(), "w", stderr) == nullptr) ::_exit(98);
    ::execv(testing::binary_path("tiercel").c_str(), argv.data());
    ::_exit(99);
  }
  void interrupt(int signal) const { EXPECT_EQ(::kill(pid_, signal), 0); }
  // Its exit status; -1 if it has not exited by itself.
  int wait() const {
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = -1;
};

class ReplayTool : public ::testing::Test {
 protected:
  std::string make_pipe(const std::string& name) {
    std::string path = folder_.path(name);
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
    return path;
  }
  std::string error_path() const { return folder_.path("stderr"); }

  testing::TempFolder folder_;
};

// One signal, and not a byte after it: nothing but the signal can end the reading.
TEST_F(ReplayTool, OneSignalEndsTheReadingOfATraceThatDoesNotCome) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string pipe = make_pipe("trace" + std::to_string(signal));
    const Tool tool({"tiercel", "replay", "--trace", pipe}, error_path());
    const std::ofstream writer(pipe);  // opens when the tool has
    tool.interrupt(signal);
    EXPECT_EQ(tool.wait(), kExitInterrupted) << testing::read_file(error_path());
  }
}

TEST_F(ReplayTool, OneSignalEndsTheReadingOfAConfigurationThatDoesNotCome) {
  const std::string pipe = make_pipe("config");
  const Tool tool({"tiercel", "replay", "--trace", kTrace, "--config", pipe}, error_path());
  const std::ofstream writer(pipe);
  tool.interrupt(SIGTERM);
  EXPECT_EQ(tool.wait(), kExitInterrupted) << testing::read_file(error_path());
}

// The store never answers, so the replay is in its first request when the signal comes.
TEST_F(ReplayTool, CtrlCPrintsWhatThereIsAndExits130EvenIfTheStoreHangs) {
  const std::string json = make_pipe("json");
  const Tool tool(
      {"tiercel", "replay", "--trace", kTrace, "--block-bytes", "256B", "--store",
       "faulty+memory:?fault_drop=0.3&fault_seed=6", "--patience", "1h", "--json", json},
      error_path());
  std::ifstream reader(json);  // opens when the trace has been read
  tool.interrupt(SIGINT);
  const std::string figures{std::istreambuf_iterator<char>(reader), {}};
  EXPECT_EQ(tool.wait(), kExitInterrupted);
  EXPECT_NE(figures.find("\"complete\": false"), std::string::npos) << figures;
  EXPECT_EQ(testing::read_file(error_path()), "");
}

// The tool in a folder of its own, with another program beside it in place of tiercel-rank.
class ToolWithOtherRank : public ReplayTool {
 protected:
  void use_rank(const std::string& lines, bool is_executable = true) {
    const std::string tool = folder_.path("tiercel");
    std::filesystem::copy_file(testing::binary_path("tiercel"), tool,
                               std::filesystem::copy_options::skip_existing);
    const std::string rank = folder_.write("tiercel-rank", "#!/bin/sh\n" + lines);
    using std::filesystem::perms;
    std::filesystem::permissions(rank, is_executable ? perms::owner_all : perms::owner_read);
  }
  testing::Outcome replay(const std::string& options) const {
    return testing::run_shell(folder_.path("tiercel") + " replay --limit 200 --host-blocks 300 " +
                              "--block-bytes 256 --rank-host process --trace " + kTrace + " " +
                              options);
  }
  const std::string real_ = "exec " + testing::binary_path("tiercel-rank") + " \"$@\"\n";
};

// It is there for the first start only.
TEST_F(ToolWithOtherRank, RankThatDoesNotComeBackIsNamedInTheReportAndNotCountedAsBack) {
  use_rank("rm \"$0\"\n" + real_);
  // Long enough for the starts that fail: 200 requests may be over before the last of them.
  const testing::Outcome outcome =
      replay("--limit 6000 --kill-rank-every 50 --json " + folder_.path("out.json"));
  EXPECT_EQ(outcome.status, kExitOk) << outcome.text;
  EXPECT_NE(outcome.text.find("1 killed; 0 came back"), std::string::npos) << outcome.text;
  EXPECT_NE(outcome.text.find("GIVEN UP after 4 starts: "), std::string::npos) << outcome.text;
  EXPECT_NE(outcome.text.find("tiercel replay: rank 0 was given up"), std::string::npos)
      << outcome.text;
  const std::string json = testing::read_file(folder_.path("out.json"));
  EXPECT_NE(json.find("\"given_up\": true"), std::string::npos) << json;
  EXPECT_NE(json.find("execve: No such file"), std::string::npos) << json;
}

TEST_F(ToolWithOtherRank, ProgramThatEndsAtOnceIsRefusedSoonAndEachStartIsLogged) {
  use_rank("exit 3\n");
  const testing::Outcome outcome = replay("");
  EXPECT_EQ(outcome.status, kExitRefused);
  size_t logged = 0;
  const std::string reason = "rank 0 did not come up: ";
  for (size_t at = 0; (at = outcome.text.find(reason, at)) != std::string::npos; ++at) ++logged;
  EXPECT_EQ(logged, 3u) << outcome.text;
  EXPECT_NE(outcome.text.find("exited with status 3"), std::string::npos) << outcome.text;
}

TEST_F(ToolWithOtherRank, ProgramThatIsThereButCannotBeRunIsNotCalledMissing) {
  use_rank(real_, false);
  const testing::Outcome outcome = replay("");
  EXPECT_EQ(outcome.status, kExitRefused);
  EXPECT_NE(outcome.text.find("tiercel-rank' cannot be run: Permission denied"), std::string::npos)
      << outcome.text;
  EXPECT_NE(outcome.text.find("chmod +x"), std::string::npos) << outcome.text;
  std::filesystem::remove(folder_.path("tiercel-rank"));
  EXPECT_NE(replay("").text.find("there is no program"), std::string::npos);
}

// SIGXFSZ would end it, with ranks in processes before the first request.
TEST_F(ReplayTool, LimitOfFileSizeIsSaidInWords) {
  const std::string command = "ulimit -f 16; exec " + testing::binary_path("tiercel") +
                              " replay --limit 20 --trace " + kTrace;
  const testing::Outcome ranks = testing::run_shell(command + " --rank-host process");
  EXPECT_EQ(ranks.status, kExitRefused) << ranks.text;
  EXPECT_NE(ranks.text.find("ulimit -f"), std::string::npos) << ranks.text;
  // Nor may a result that does not fit.
  const std::string full = "ulimit -f 2; exec " + testing::binary_path("tiercel") +
                           " replay --limit 20 --trace " + kTrace + " --json " +
                           folder_.path("out.json");
  const testing::Outcome result = testing::run_shell(full);
  EXPECT_EQ(result.status, kExitFailed) << result.text;
  EXPECT_NE(result.text.find("File too large"), std::string::npos) << result.text;
}

#ifndef TIERCEL_SANITIZED  // sanitizers need all addresses

// With at most so much address space.
testing::Outcome run_with_memory(uint64_t kibibytes, const std::string& arguments) {
  return testing::run_shell("ulimit -v " + std::to_string(kibibytes) + "; exec " +
                            testing::binary_path("tiercel") + " " + arguments);
}

// The smallest address space, in steps, in which the tool can do anything at all.
uint64_t least_kibibytes() {
  uint64_t kibibytes = 8192;
  while (run_with_memory(kibibytes, "version").status != kExitOk) kibibytes += 2048;
  return kibibytes;
}

TEST_F(ReplayTool, ShortMemoryIsSaidInWordsWhereverItRunsOut) {
  const uint64_t least = least_kibibytes();
  bool ran_out = false;
  for (uint64_t more = 0; more <= 32768; more += 2048) {
    const testing::Outcome outcome =
        run_with_memory(least + more,
                        "replay --metadata-only --host-blocks 50000 --block-tokens "
                        "16 --limit 200 --trace " +
                            kTrace);
    if (outcome.status == kExitOk) continue;
    ran_out = true;
    EXPECT_TRUE(outcome.status == kExitFailed || outcome.status == kExitRefused)
        << least + more << " KiB: " << outcome.status << "\n"
        << outcome.text;
    EXPECT_TRUE(outcome.text.starts_with("tiercel")) << outcome.text;
  }
  EXPECT_TRUE(ran_out);
}

TEST_F(ReplayTool, AGoodLineThatMemoryDoesNotSufficeForIsNotSkipped) {
  const std::string path = folder_.write(
      "trace.jsonl", R"({"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1]})"
                     "\n"
                     R"({"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1], )"
                     "\"x\": \"" +
                         std::string(15u << 20, 'x') + "\"}\n");
  const uint64_t least = least_kibibytes();
  bool ran_out = false;
  for (uint64_t more = 16384; more <= 131072; more += 8192) {
    const testing::Outcome outcome = run_with_memory(
        least + more, "replay --metadata-only --host-blocks 4 --skip-bad-lines --trace " + path);
    EXPECT_EQ(outcome.text.find("skipped"), std::string::npos) << outcome.text;
    if (outcome.status == kExitOk) continue;
    ran_out = true;
    EXPECT_EQ(outcome.status, kExitFailed) << least + more << " KiB\n" << outcome.text;
    EXPECT_NE(outcome.text.find("out of memory"), std::string::npos) << outcome.text;
  }
  EXPECT_TRUE(ran_out);
}

#endif

// The figures said that a store was given up, and nobody knew why.
TEST_F(ReplayTool, TellsWhyTheStoreOfARankWasGivenUp) {
  for (const char* host : {"thread", "process"}) {
    const testing::Outcome outcome = testing::run_shell(
        testing::binary_path("tiercel") + " replay --trace " + kTrace +
        " --limit 40 --ranks 2 --host-blocks 100 --block-bytes 4KiB --no-optimum --rank-host " +
        host + " --store 'mooncake://127.0.0.1:1?python=/bin/false' --json " +
        folder_.path("figures"));
    EXPECT_EQ(outcome.status, 0) << outcome.text;
    constexpr std::string_view kWhy =
        "the Python '/bin/false' exited with status 1 before it ran the sidecar";
    EXPECT_NE(outcome.text.find("of rank 0              " + std::string(kWhy)), std::string::npos)
        << host << ": " << outcome.text;
    const std::string figures = testing::read_file(folder_.path("figures"));
    const size_t first = figures.find(kWhy);
    ASSERT_NE(first, std::string::npos) << host << ": " << figures;
    EXPECT_NE(figures.find(kWhy, first + 1), std::string::npos) << "each rank has its own";
  }
}

// What it has found out by then is printed, and nothing of that is a failure.
TEST_F(ReplayTool, OneSignalEndsACheckOfAStoreThatDoesNotAnswer) {
  const std::string silent = folder_.write("silent", "#!/bin/sh\nexec sleep 1000\n");
  std::filesystem::permissions(silent, std::filesystem::perms::owner_all);
  const std::string pipe = make_pipe("started");
  const std::string program =
      folder_.write("python3", "#!/bin/sh\necho started > " + pipe + "\nexec " + silent + "\n");
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const Tool tool({"tiercel", "store", "check", "--deadline", "1h", "--store",
                   "mooncake://127.0.0.1:1?start_timeout=1h&python=" + program},
                  error_path());
  // The sidecar is there, so it is being waited for.
  EXPECT_EQ(testing::read_file(pipe), "started\n");
  tool.interrupt(SIGINT);
  EXPECT_EQ(tool.wait(), kExitInterrupted);
  EXPECT_EQ(testing::read_file(error_path()), "tiercel store check: interrupted\n");
}

}  // namespace
}  // namespace tiercel
