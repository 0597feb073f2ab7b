// SPDX-License-Identifier: Apache-2.0
#include "cli/result_file.h"

#include <cerrno>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>

#include "base/error_text.h"
#include "base/quantity.h"

namespace tiercel {
namespace {

namespace fs = std::filesystem;

constexpr int kLinksMax = 40;
constexpr mode_t kUsualMode = 0666;  // less the umask

Error refused(const std::string& path, const std::string& why) {
  return Error(Code::kInvalid, "json is " + quoted_path(path) + ", which " + why);
}
Error cannot_write(const std::string& path, int error) {
  return refused(path, std::string("cannot be written: ") + error_text(error));
}

// Whether the name stands for what some process has open.
bool is_open_file(std::string_view path) {
  return path.starts_with("/proc/") || path.starts_with("/dev/fd/");
}

// The file that `path` leads to, there or not: renaming onto a link would replace the link. Ends at
// links of /proc.
Result<std::string> behind_links(const std::string& path) {
  fs::path target = path;
  std::error_code error;
  for (int i = 0;
       !is_open_file(target.string()) && fs::is_symlink(fs::symlink_status(target, error)); ++i) {
    const fs::path next = fs::read_symlink(target, error);
    if (error || i == kLinksMax) return cannot_write(path, error ? error.value() : ELOOP);
    target = target.parent_path() / next;
  }
  return target.string();
}

std::string folder_of(const std::string& target) {
  const fs::path folder = fs::path(target).parent_path();
  return folder.empty() ? "." : folder.string();
}

// A new file beside `target`. Its name is short, so that it fits wherever the target's does.
FileDescriptor make_temporary(const std::string& target, std::string& name) {
  constexpr int kTriesMax = 100;
  for (int i = 0; i < kTriesMax; ++i) {
    name = folder_of(target) + "/.tiercel-" + std::to_string(::getpid()) + "-" + std::to_string(i);
    FileDescriptor file(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kUsualMode));
    if (file || errno != EEXIST) return file;
  }
  return {};
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    text.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

bool write_in_place(const std::string& target, std::string_view text) {
  const FileDescriptor file(::open(target.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
  return file && write_all(file.get(), text) && ::fsync(file.get()) == 0;
}

// As the file that is replaced; where the owner cannot be kept, the rights of the group are not
// given to another one.
bool take_over_rights(int fd, const std::string& target) {
  struct stat old {};
  if (::stat(target.c_str(), &old) != 0) return true;
  const bool owned = ::fchown(fd, old.st_uid, old.st_gid) == 0;
  return ::fchmod(fd, old.st_mode & (owned ? 0777 : 0707)) == 0;
}

// 0, or what went wrong; then nothing is left beside the target.
int replace(const std::string& target, std::string_view text) {
  std::string name;
  const FileDescriptor file = make_temporary(target, name);
  if (!file) return errno;
  if (take_over_rights(file.get(), target) && write_all(file.get(), text) &&
      ::fsync(file.get()) == 0 && ::rename(name.c_str(), target.c_str()) == 0) {
    return 0;
  }
  const int error = errno;
  ::unlink(name.c_str());
  return error;
}

}  // namespace

Result<ResultFile> ResultFile::open(const std::string& path, const InputFiles& inputs) {
  std::error_code error;
  for (const auto& [option, input] : inputs) {
    if (!input.empty() && fs::equivalent(path, input, error) && !error &&
        fs::is_regular_file(path)) {
      return refused(path, "is the file of " + std::string(option) + "; allowed: another one");
    }
  }
  ResultFile file(path);
  struct stat old {};
  const bool is_there = ::stat(path.c_str(), &old) == 0;
  if (!is_there && errno != ENOENT) return cannot_write(path, errno);
  TIERCEL_TRY_ASSIGN(file.target_, behind_links(path));
  // A link of /proc, such as /dev/stdout, leads to what somebody has open; its text need not be a
  // path.
  if (is_there && (!S_ISREG(old.st_mode) || is_open_file(file.target_))) {
    file.special_.reset(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
    if (!file.special_) return cannot_write(path, errno);
    return file;
  }
  if (is_there && ::access(file.target_.c_str(), W_OK) != 0) return cannot_write(path, errno);
  if (!is_there && fs::path(file.target_).filename().empty()) return cannot_write(path, EISDIR);

  // Removed again at once, so that a run that is killed leaves nothing behind.
  std::string name;
  const FileDescriptor probe = make_temporary(file.target_, name);
  if (probe) {
    ::unlink(name.c_str());
  } else if (is_there) {
    file.in_place_ = true;
  } else {
    return cannot_write(path, errno);
  }
  return file;
}

Result<std::optional<ResultFile>> open_json_file(const std::string& json,
                                                 const OptionValues& values, InputFiles inputs) {
  if (json.empty() || json == kStandardOutput) return std::optional<ResultFile>();
  if (values.is_set("config")) inputs.emplace_back("config", values.get_string("config"));
  TIERCEL_TRY_ASSIGN(ResultFile file, ResultFile::open(json, inputs));
  return std::optional<ResultFile>(std::move(file));
}

Status ResultFile::write(std::string_view text) {
  int error = 0;
  if (special_) {
    if (!write_all(special_.get(), text)) error = errno;
    special_.reset();
  } else {
    if (!in_place_) error = replace(target_, text);
    // A file that is mounted by itself cannot be replaced.
    if ((in_place_ || error == EBUSY)) error = write_in_place(target_, text) ? 0 : errno;
  }
  if (error == 0) return {};
  return Error(Code::kUnavailable,
               "json: " + quoted_path(path_) + " could not be written: " + error_text(error));
}

}  // namespace tiercel
