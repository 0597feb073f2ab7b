// SPDX-License-Identifier: Apache-2.0
//
// A Mooncake pool of a test's own: a master and a process that gives it memory, on free loopback
// ports (scripts/mooncake-dev serve). Everything of it is gone with this object, and with the test
// however that ends.
#pragma once

#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file_descriptor.h"
#include "store/mooncake/mooncake_options.h"
#include "support/paths.h"
#include "support/shell.h"
#include "support/temp_folder.h"
#include "support/wait_readable.h"

// Without the package a test fails, and says how to get it; who wants to do without says so.
#define TIERCEL_NEEDS_MOONCAKE()                                                      \
  do {                                                                                \
    if (std::getenv("TIERCEL_WITHOUT_MOONCAKE") != nullptr) {                         \
      GTEST_SKIP() << "TIERCEL_WITHOUT_MOONCAKE is set: nothing is tested on a pool"; \
    }                                                                                 \
  } while (false)

namespace tiercel::testing {

class MooncakePool {
 public:
  // Null, with a failure that says why, if there is none.
  static std::unique_ptr<MooncakePool> start(std::vector<std::string> arguments = {}) {
    // What the sidecars of this test inherit: on a busy machine a second may pass without fault.
    ::setenv("MC_RPC_TIMEOUT_MS", "10000", 0);
    std::unique_ptr<MooncakePool> pool(new MooncakePool());
    std::vector<std::string> words{source_path("scripts/mooncake-dev"), "serve", "--short-times"};
    if (arguments.empty()) arguments = {"--segment", "256MiB"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    if (!pool->spawn(words)) return nullptr;
    pool->url_ = pool->read_line();
    if (!pool->url_.starts_with(kScheme)) {
      ADD_FAILURE() << "no Mooncake pool, see above; install what it needs with "
                       "scripts/install-deps --for mooncake, or set TIERCEL_WITHOUT_MOONCAKE=1 to "
                       "leave out what is tested on one";
      return nullptr;
    }
    return pool;
  }

  ~MooncakePool() {
    // It ends with its input.
    input_.reset();
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }
  MooncakePool(const MooncakePool&) = delete;
  MooncakePool& operator=(const MooncakePool&) = delete;

  const std::string& url() const { return url_; }
  // host:port, and a Python to use if it is not the usual one.
  std::string address() const { return url_.substr(kScheme.size()); }

  // See COMMANDS in scripts/mooncake-dev.
  void command(const std::string& line) {
    const std::string text = line + "\n";
    ASSERT_EQ(::write(input_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ASSERT_EQ(read_line(), "ok") << line;
  }

  // Lines of Python in a process of their own, with a client of the pool, `store`, a function
  // `memory(bytes)` for the address of a copy, and `keys`. It ends without any clean-up, as if
  // killed.
  void run_client(const std::vector<std::string>& keys, const std::string& lines) const {
    std::string list;
    for (const std::string& key : keys) list += "'" + key + "',";
    const TempFolder folder;
    const std::string script =
        folder.write("client.py",
                     "import ctypes, mmap, os\n"
                     "from mooncake.store import MooncakeDistributedStore, ReplicateConfig\n"
                     "store = MooncakeDistributedStore()\n"
                     "assert store.setup('127.0.0.1', 'P2PHANDSHAKE', 0, 16 << 20, 'tcp', '', '" +
                         address().substr(0, address().find('?')) +
                         "') == 0\n"
                         "maps = []\n"
                         "def memory(value):\n"
                         "    maps.append(mmap.mmap(-1, len(value)))\n"
                         "    maps[-1][:] = value\n"
                         "    return ctypes.addressof(ctypes.c_char.from_buffer(maps[-1]))\n"
                         "keys = [" +
                         list + "]\n" + lines + "os._exit(0)\n");
    const Outcome outcome = run_shell(default_mooncake_python() + " -I " + script);
    ASSERT_EQ(outcome.status, 0) << outcome.text;
  }

 private:
  static constexpr std::string_view kScheme = "mooncake://";

  MooncakePool() = default;

  bool spawn(const std::vector<std::string>& words) {
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    if (::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0) return false;
    const FileDescriptor child_input(in[0]);
    const FileDescriptor child_output(out[1]);
    input_.reset(in[1]);
    output_.reset(out[0]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, child_input.get(), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, child_output.get(), STDOUT_FILENO);
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    const int error =
        ::posix_spawn(&pid_, words[0].c_str(), &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
      pid_ = 0;
      ADD_FAILURE() << words[0] << " could not be run: " << error;
    }
    return error == 0;
  }

  std::string read_line() {
    std::string line;
    char c = 0;
    while (readable(output_.get(), kHangMs) && ::read(output_.get(), &c, 1) == 1 && c != '\n') {
      line += c;
    }
    return line;
  }

  pid_t pid_ = 0;
  FileDescriptor input_;
  FileDescriptor output_;
  std::string url_;
};

}  // namespace tiercel::testing
