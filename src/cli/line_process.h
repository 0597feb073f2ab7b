// SPDX-License-Identifier: Apache-2.0
//
// LineProcess: a program that answers each line on its standard input with one line.
//
// Threads: one. The program ends with this object, and with this process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tiercel/clock.h"
#include "tiercel/status.h"

#include "base/child_process.h"
#include "base/file_descriptor.h"

namespace tiercel {

class LineProcess {
 public:
  // arguments[0] is the program. Its standard error goes to `error_log`; empty: to ours.
  // kUnavailable if there is no descriptor or thread left; that the program cannot be run shows
  // when it is read from.
  static Result<std::unique_ptr<LineProcess>> start(std::vector<std::string> arguments,
                                                    std::string error_log = {});

  // Without its end of line. kUnavailable with the program's name if it has ended, kTimeout if no
  // line came within `limit`, of real time.
  Result<std::string> read_line(Duration limit);
  // Sends a line and waits for the answer.
  Result<std::string> ask(const std::string& line, Duration limit);

 private:
  LineProcess(std::string name, FileDescriptor socket, std::unique_ptr<ChildProcess> process)
      : name_(std::move(name)), socket_(std::move(socket)), process_(std::move(process)) {}

  const std::string name_;
  FileDescriptor socket_;
  std::unique_ptr<ChildProcess> process_;
  std::string received_;  // and not yet handed out
};

}  // namespace tiercel
