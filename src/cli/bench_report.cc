// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "cli/bench.h"

namespace tiercel {

std::string bench_text(const BenchFigures& figures) {
  std::string text;
  for (const BenchFigure& figure : figures) {
    text += fmt::format("{:<36} {:>10.4g} {}", figure.name, figure.value, figure.unit);
    if (figure.limit) text += fmt::format("  limit {:.4g}", *figure.limit);
    if (figure.ratio) text += fmt::format("  ratio {:.3f}", *figure.ratio);
    text += "\n   ";
    for (const auto& [name, value] : figure.conditions)
      text += fmt::format(" {}: {};", name, value);
    text.back() = '\n';
  }
  return text;
}

std::string bench_json(const BenchFigures& figures) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  for (const BenchFigure& figure : figures) {
    Json entry;
    entry["name"] = figure.name;
    entry["value"] = figure.value;
    entry["unit"] = figure.unit;
    entry["limit"] = figure.limit ? Json(*figure.limit) : Json();
    entry["ratio"] = figure.ratio ? Json(*figure.ratio) : Json();
    entry["conditions"] = Json::object();
    for (const auto& [name, value] : figure.conditions) entry["conditions"][name] = value;
    list.push_back(std::move(entry));
  }
  return list.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tiercel
