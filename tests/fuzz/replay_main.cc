// SPDX-License-Identifier: Apache-2.0
//
// Stands in for libFuzzer where there is none: feeds a target each file of the given folders.
//   TARGET FOLDER-OR-FILE…
// Exit 0: all went well. 1: there was nothing to feed. 77: a check failed (as libFuzzer exits).
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz_target.h"

namespace {

constexpr int kFoundSomething = 77;

// A test that must fail can be told from one that could not run by its exit status only.
void exit_on_abort(int /*signal*/) { std::_Exit(kFoundSomething); }

std::vector<std::filesystem::path> files_of(int argc, char** argv) {
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i) {
    std::error_code error;
    if (!std::filesystem::is_directory(argv[i], error)) {
      files.emplace_back(argv[i]);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool feed(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "%s cannot be read\n", path.c_str());
    return false;
  }
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  // A copy of exactly this size, so that the sanitizers see a read behind it.
  const std::vector<uint8_t> input(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(input.data(), input.size());
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGABRT, exit_on_abort);
  LLVMFuzzerTestOneInput(nullptr, 0);
  const std::vector<std::filesystem::path> files = files_of(argc, argv);
  for (const std::filesystem::path& path : files) {
    std::fprintf(stderr, "%s\n", path.filename().c_str());
    if (!feed(path)) return 1;
  }
  std::fprintf(stderr, "%zu inputs\n", files.size());
  return files.empty() ? 1 : 0;
}
