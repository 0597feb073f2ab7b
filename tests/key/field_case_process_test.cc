// SPDX-License-Identifier: Apache-2.0
//
// F06: a restarted process never hit what was stored, because its keys depended on the process
// (hash seeds, absent values). Here keys are printed by fresh processes that differ in all that a
// process gets from outside.

#include <clocale>
#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tiercel/key.h"

#include "key/samples.h"

namespace tiercel {
namespace {

constexpr const char* kDumpVariable = "TIERCEL_TEST_KEY_DUMP";

void add_line(std::string& dump, std::string_view word) {
  dump += word;
  dump += '\n';
}

// Every kind of key, from specs, scopes, items and tokens of which some facts are absent.
std::string key_dump() {
  std::string dump;
  Random random(6);
  for (int round = 0; round < 40; ++round) {
    const auto text_or_nothing = [&] {
      return random.chance(0.5) ? testing::random_text(random, 1, 20) : std::string();
    };
    KvSpec spec = testing::random_spec(random);
    spec.positional_scheme = text_or_nothing();
    spec.layout_tag = text_or_nothing();
    const Namespace name_space = *make_namespace(spec);
    const Scope scope{text_or_nothing(), text_or_nothing(), text_or_nothing()};
    Sequence sequence(make_root(name_space, scope), 16);
    if (random.chance(0.5)) {
      EXPECT_TRUE(sequence.add_item({"image", testing::random_text(random, 0, 32), 5, 40}));
    }
    sequence.append(testing::random_tokens(random, random.between(64, 100)));
    add_line(dump, name_space.hex());
    for (const BlockKey& key : sequence.keys()) {
      add_line(dump, ObjectKey(name_space, GroupId(0), Slice{}, key).text());
    }
    const auto partial = sequence.partial_key();
    add_line(dump, partial ? partial->hex() : "no partial block");
    const auto foreign =
        foreign_block_key(EngineHash::kSha256, name_space.bytes, scope, round % 2 == 0);
    add_line(dump, foreign->hex());
  }
  return dump;
}

struct Setting {
  const char* folder;
  std::vector<std::string> environment;
};

// Runs this test alone in a fresh process, which writes its keys to a pipe and ends.
std::string key_dump_of(const Setting& setting) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  EXPECT_GE(child, 0);
  if (child == 0) {
    std::vector<std::string> environment = setting.environment;
    environment.push_back(std::string(kDumpVariable) + "=" + std::to_string(ends[1]));
    std::vector<char*> pointers;
    for (std::string& variable : environment) pointers.push_back(variable.data());
    pointers.push_back(nullptr);
    std::string program = "/proc/self/exe";
    std::string filter = "--gtest_filter=FieldCase.F06KeysAreEqualInFreshProcesses";
    char* const arguments[] = {program.data(), filter.data(), nullptr};
    if (::chdir(setting.folder) != 0) ::_exit(98);
    ::execve(program.c_str(), arguments, pointers.data());
    ::_exit(99);
  }
  ::close(ends[1]);
  std::string dump;
  char piece[4096];
  for (ssize_t count; (count = ::read(ends[0], piece, sizeof piece)) > 0;) {
    dump.append(piece, static_cast<size_t>(count));
  }
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return dump;
}

TEST(FieldCase, F06KeysAreEqualInFreshProcesses) {
  const char* const descriptor = std::getenv(kDumpVariable);
  if (descriptor != nullptr) {  // this is one of the fresh processes
    std::setlocale(LC_ALL, "");
    const std::string dump = key_dump();
    const ssize_t written = ::write(std::atoi(descriptor), dump.data(), dump.size());
    ASSERT_EQ(written, static_cast<ssize_t>(dump.size()));
    return;
  }
  const std::string here = key_dump();
  ASSERT_GT(here.size(), 10'000u);
  const std::vector<Setting> settings = {
      {"/", {"LC_ALL=C", "TZ=UTC", "PYTHONHASHSEED=0"}},
      {"/proc", {"LC_ALL=C.UTF-8", "TZ=Asia/Kathmandu", "PYTHONHASHSEED=random"}},
      // What the allocator hands out is filled with bytes that differ.
      {"/", {"LC_ALL=tr_TR.UTF-8", "MALLOC_PERTURB_=165", "USER=somebody", "HOSTNAME=elsewhere"}},
      {"/", {}}};
  for (size_t i = 0; i < settings.size(); ++i) {
    EXPECT_EQ(key_dump_of(settings[i]), here) << "setting " << i;
  }
}

}  // namespace
}  // namespace tiercel
