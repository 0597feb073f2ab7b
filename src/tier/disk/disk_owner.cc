// SPDX-License-Identifier: Apache-2.0
#include "tier/disk/disk_owner.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include <sys/file.h>
#include <unistd.h>

#include "base/error_text.h"
#include "base/quantity.h"

namespace tiercel {
namespace {

constexpr const char* kOwnerName = "owner";
// Written here first, so that a reader never sees half of it.
constexpr const char* kNewOwnerName = "owner.new";
constexpr size_t kOwnerBytesMax = 4096;
constexpr Duration kLockPollInterval = std::chrono::milliseconds(10);

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::string program_path() {
  std::array<char, 1024> path{};
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  return length > 0 ? std::string(path.data(), static_cast<size_t>(length)) : "unknown";
}

std::string wall_clock_text() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc)};
}

std::string read_owner(const DiskPath& instance) {
  const Result<DiskPath> file = open_disk_file(instance, kOwnerName, DiskOpen::kRead);
  if (!file) return {};
  std::string text(kOwnerBytesMax, '\0');
  const Result<size_t> length = read_disk_file(*file, 0, std::as_writable_bytes(std::span(text)));
  text.resize(length ? *length : 0);
  return text;
}

// The value of a line "name value", made safe for a message.
std::string value_of(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.size() > name.size() && line.substr(0, name.size()) == name &&
        line[name.size()] == ' ') {
      return escaped_path(line.substr(name.size() + 1));
    }
  }
  return "unknown";
}

// What is known of the life of a process; only on its own host does its number mean anything.
std::string life_of(const std::string& pid_text, const std::string& host) {
  if (host != escaped_path(host_name())) return " on host " + host;
  pid_t pid = 0;
  const auto [end, error] =
      std::from_chars(pid_text.data(), pid_text.data() + pid_text.size(), pid);
  if (error != std::errc() || end != pid_text.data() + pid_text.size() || pid <= 0) return "";
  if (pid == ::getpid()) return ", which is this one";
  if (::kill(pid, 0) == 0 || errno != ESRCH) return "";
  return ", which no longer lives; what it has started, such as rank processes, still holds the "
         "files";
}

Error busy(const DiskPath& instance) {
  return Error(Code::kBusy, "disk tier " + quoted_path(instance.path) + " is in use by " +
                                describe_disk_owner(instance) +
                                "; end that, or choose another disk_instance or disk_path");
}

}  // namespace

Result<DiskPath> open_locked_disk_file(const DiskPath& folder, const std::string& name,
                                       DiskOpen how, TimePoint deadline, const DiskPath& instance) {
  const SystemClock clock;
  while (true) {
    TIERCEL_TRY_ASSIGN(DiskPath file, open_disk_file(folder, name, how));
    while (::flock(file.fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno != EWOULDBLOCK) return disk_error(file.path, "lock", errno);
      if (clock.now() >= deadline) return busy(instance);
      std::this_thread::sleep_for(kLockPollInterval);
    }
    // Whoever had it may have removed it: then the lock is on a file that nobody else will find.
    if (is_still_there(folder, name, file)) return file;
  }
}

Result<bool> is_disk_file_locked(const DiskPath& file) {
  if (::flock(file.fd.get(), LOCK_SH | LOCK_NB) == 0) {
    ::flock(file.fd.get(), LOCK_UN);
    return false;
  }
  if (errno != EWOULDBLOCK) return disk_error(file.path, "look for the lock of", errno);
  return true;
}

Status write_disk_owner(const DiskPath& instance) {
  const std::string text = "pid " + std::to_string(::getpid()) + "\nhost " + host_name() +
                           "\nprogram " + program_path() + "\nsince " + wall_clock_text() + "\n";
  TIERCEL_TRY_ASSIGN(const DiskPath file, open_disk_file(instance, kNewOwnerName, DiskOpen::kMake));
  TIERCEL_TRY(truncate_disk_file(file, 0));
  TIERCEL_TRY(write_disk_file(file, 0, std::as_bytes(std::span(text))));
  if (::renameat(instance.fd.get(), kNewOwnerName, instance.fd.get(), kOwnerName) != 0) {
    return disk_error(file.path, "rename", errno);
  }
  return {};
}

void remove_disk_owner(const DiskPath& instance) { ::unlinkat(instance.fd.get(), kOwnerName, 0); }

std::string describe_disk_owner(const DiskPath& instance) {
  const std::string text = read_owner(instance);
  if (text.empty()) return "an unknown process";
  const std::string pid = value_of(text, "pid");
  return "process " + pid + " (" + value_of(text, "program") + ") since " +
         value_of(text, "since") + life_of(pid, value_of(text, "host"));
}

}  // namespace tiercel
