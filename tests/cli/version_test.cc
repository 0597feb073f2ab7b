// SPDX-License-Identifier: Apache-2.0
#include "cli/version.h"

#include <string>

#include <gtest/gtest.h>

#include "support/paths.h"
#include "support/temp_folder.h"

namespace tiercel {
namespace {

TEST(Version, IsThatOfTheBuild) {
  const std::string build = testing::read_file(testing::source_path("CMakeLists.txt"));
  EXPECT_NE(build.find("project(tiercel VERSION " + std::string(kVersion) + " "),
            std::string::npos);
}

}  // namespace
}  // namespace tiercel
