// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_fio.h"

#include <cerrno>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error_text.h"
#include "base/file_descriptor.h"
#include "base/quantity.h"

namespace tiercel {
namespace {

constexpr const char* kProgram = "fio";
constexpr size_t kWordsMax = 300;

// A colon parts two names there.
std::string escaped_for_fio(const std::string& path) {
  std::string text;
  for (const char c : path) {
    if (c == ':' || c == '\\') text += '\\';
    text += c;
  }
  return text;
}

std::vector<std::string> arguments_of(const FioJob& job) {
  return {kProgram,
          "--name=limit",
          "--filename=" + escaped_for_fio(job.file),
          "--ioengine=io_uring",
          "--direct=1",
          "--fallocate=none",
          "--scramble_buffers=0",
          "--gtod_reduce=1",
          fmt::format("--fixedbufs={}", job.register_memory ? 1 : 0),
          std::string("--rw=") + (job.order == FioOrder::kWriteInOrder ? "write" : "randread"),
          fmt::format("--bs={}", job.request_bytes),
          fmt::format("--size={}", job.request_bytes * job.request_count),
          fmt::format("--iodepth={}", job.depth),
          fmt::format("--randseed={}", job.seed),
          "--output-format=json"};
}

std::string read_to_end(const FileDescriptor& from) {
  std::string text;
  char piece[4096];
  while (true) {
    const ssize_t count = ::read(from.get(), piece, sizeof piece);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(piece, static_cast<size_t>(count));
  }
}

// Both outputs and the exit status of the program.
Result<std::pair<std::string, int>> run(const std::vector<std::string>& arguments) {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error(Code::kUnavailable, error_text(errno));
  const FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, writer.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, writer.get(), STDERR_FILENO);
  // Its memory on huge pages, as our arenas are: larger pieces for the disk. It needs nothing else.
  char huge_pages[] = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1";
  char* const environment[] = {huge_pages, nullptr};
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, kProgram, &actions, nullptr, argv.data(), environment);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error == ENOENT) return Error(Code::kNotFound, "fio is not installed (package fio)");
  if (error != 0) return Error(Code::kUnavailable, "fio cannot be run: " + error_text(error));
  writer.reset();
  std::string text = read_to_end(reader);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return std::pair(std::move(text), status);
}

}  // namespace

Result<FioFigures> run_fio(const FioJob& job) {
  TIERCEL_TRY_ASSIGN(const auto outcome, run(arguments_of(job)));
  const auto& [text, status] = outcome;
  // Warnings may stand before the figures.
  const size_t begin = text.find('{');
  const auto json = begin == std::string::npos
                        ? nlohmann::json()
                        : nlohmann::json::parse(text.begin() + static_cast<ptrdiff_t>(begin),
                                                text.end(), nullptr, false);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || !json.is_object() ||
      !json.contains("jobs") || json["jobs"].empty()) {
    return Error(Code::kUnavailable,
                 "fio failed: " + escaped_text(std::string_view(text).substr(0, kWordsMax)));
  }
  const auto& figures = json["jobs"][0];
  const auto& way = figures[job.order == FioOrder::kWriteInOrder ? "write" : "read"];
  const double runtime_s = way.value("runtime", 0.0) / 1e3;
  return FioFigures{
      .bytes_per_s = way.value("bw_bytes", 0.0),
      .cpu_s = runtime_s * (figures.value("usr_cpu", 0.0) + figures.value("sys_cpu", 0.0)) / 100};
}

}  // namespace tiercel
