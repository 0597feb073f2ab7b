// SPDX-License-Identifier: Apache-2.0
//
// What somebody who misspelt a name probably meant.
#pragma once

#include <string_view>
#include <vector>

namespace tiercel {

// The candidate nearest to `name` by edit distance (an exchange of neighbours counts as one edit),
// the first of equals, or empty if none is near: more than a third of the longer one differs.
std::string_view nearest_name(std::string_view name,
                              const std::vector<std::string_view>& candidates);

}  // namespace tiercel
