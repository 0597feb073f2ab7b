// SPDX-License-Identifier: Apache-2.0
#include "base/error_text.h"

#include <cerrno>
#include <system_error>

namespace tiercel {

std::string error_text(int error) { return std::generic_category().message(error); }

std::string limit_error_text(int error) {
  switch (error) {
    case EMFILE:
      return error_text(error) + "; raise the limit of open files (ulimit -n)";
    case ENFILE:
      return error_text(error) + "; raise the system's limit of open files (fs.file-max)";
    case EAGAIN:
      return error_text(error) + "; raise the limit of threads and processes (ulimit -u, pids.max)";
    default:
      return error_text(error);
  }
}

}  // namespace tiercel
