// SPDX-License-Identifier: Apache-2.0
//
// What an error number of the operating system means, for messages.
#pragma once

#include <string>

namespace tiercel {

// `error` as errno has it: "No such file or directory". Threads: any.
std::string error_text(int error);

// The same of a call that makes a descriptor, a process or a thread, with what to raise if a limit
// has stood in its way: "Too many open files; raise the limit of open files (ulimit -n)".
std::string limit_error_text(int error);

}  // namespace tiercel
