// SPDX-License-Identifier: Apache-2.0
//
// What an error number of the operating system means, for messages.
#pragma once

#include <string>

namespace tiercel {

// `error` as errno has it: "No such file or directory". Threads: any.
std::string error_text(int error);

}  // namespace tiercel
