// SPDX-License-Identifier: Apache-2.0
//
// The files of a disk tier as the system sees them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "support/temp_folder.h"

namespace tiercel::testing {

inline bool is_owner_file(const std::filesystem::path& path) {
  return path.filename().string().starts_with("owner");
}

// Names relative to `folder`, sorted.
inline std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_directory()) {
      names.push_back(std::filesystem::relative(entry.path(), folder).string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

// What an instance that nobody has open consists of.
inline std::vector<std::string> files_of_ranks(uint32_t ranks) {
  std::vector<std::string> names;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    for (const char* name : {"/data", "/metadata"}) {
      names.push_back("rank" + std::to_string(rank) + name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

// What data and metadata files take on disk, in bytes; the owner's few lines do not count.
inline uint64_t space_below(const std::string& folder) {
  constexpr uint64_t kStatBlockBytes = 512;
  uint64_t bytes = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, ignored)) {
    struct stat status {};
    if (is_owner_file(entry.path()) || ::stat(entry.path().c_str(), &status) != 0) continue;
    if (S_ISREG(status.st_mode)) bytes += static_cast<uint64_t>(status.st_blocks) * kStatBlockBytes;
  }
  return bytes;
}

// Content of every file, to be put back later.
using FolderImage = std::map<std::string, std::string>;

inline FolderImage image_of(const std::string& folder) {
  FolderImage image;
  for (const std::string& name : files_below(folder)) {
    image[name] = read_file(folder + "/" + name);
  }
  return image;
}

inline void put_back(const std::string& folder, const FolderImage& image) {
  for (const auto& [name, content] : image) {
    std::filesystem::create_directories(std::filesystem::path(folder + "/" + name).parent_path());
    std::ofstream file(folder + "/" + name, std::ios::binary | std::ios::trunc);
    file << content;
    ASSERT_TRUE(file.flush()) << name;
  }
}

}  // namespace tiercel::testing
