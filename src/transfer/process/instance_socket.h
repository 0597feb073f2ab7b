// SPDX-License-Identifier: Apache-2.0
//
// InstanceSocket: the name under which the ranks of one instance join its control plane. A folder
// of this user alone holds FOLDER/INSTANCE.sock and FOLDER/INSTANCE.lock; the lock says who has the
// name, and goes with the process that holds it, however it ends. What a dead holder has left
// behind is taken over.
//
// Ownership: owns both files; the destructor removes them, but not in a forked child.
// Threads:   one.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <sys/types.h>

#include "tiercel/status.h"

#include "base/file_descriptor.h"

namespace tiercel {

class InstanceSocket {
 public:
  // Makes the folder (not its parents) if it is missing. kInvalid if it is not this user's alone or
  // the name is no plain file name; kBusy with the holder's process id if the name is taken.
  static Result<std::unique_ptr<InstanceSocket>> open(const std::string& folder,
                                                      const std::string& instance);
  ~InstanceSocket();
  InstanceSocket(const InstanceSocket&) = delete;
  InstanceSocket& operator=(const InstanceSocket&) = delete;

  // The next process of this user that asks to be let in; nothing if there is none. Others are
  // turned away.
  Result<std::optional<FileDescriptor>> accept();
  int fd() const { return listener_.get(); }
  const std::string& path() const { return path_; }

 private:
  InstanceSocket(std::string path, std::string lock_path, FileDescriptor lock,
                 FileDescriptor listener);

  const std::string path_;
  const std::string lock_path_;
  const FileDescriptor lock_;
  const FileDescriptor listener_;
  const pid_t owner_;
};

}  // namespace tiercel
