// SPDX-License-Identifier: Apache-2.0
#include "tiercel/key.h"

#include "cli/commands.h"
#include "cli/version.h"

namespace tiercel {

int run_version_command(const CommandContext& context) {
  context.out << "tiercel " << kVersion << ", format version " << kFormatVersion << "\n";
  return kExitOk;
}

}  // namespace tiercel
