// SPDX-License-Identifier: Apache-2.0
//
// The only user of toml++.
#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <vector>

#include <toml++/toml.h>

#include "base/option_table.h"

namespace tiercel {
namespace {

// A configuration is a page of text; what is far larger was given by mistake.
constexpr size_t kFileBytesMax = size_t{1} << 20;

struct Setting {
  size_t line;
  std::string name;
  const toml::node* node;
};

size_t line_of(const toml::node& node) { return node.source().begin.line; }

std::string place(const std::string& file, size_t line) {
  return escaped_path(file) + ":" + std::to_string(line);
}

std::string real_text(double number) {
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), number);
  return std::string(text.data(), end);
}

const char* type_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    default:
      return "a date or time";
  }
}

// The value as it stands there, as far as that is short.
std::string description(const toml::node& node) {
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* number = node.as_floating_point()) return real_text(number->get());
  return type_name(node);
}

// The value as the text that the other sources would give; nothing if its type does not fit the
// option.
std::optional<std::string> value_text(const toml::node& node, OptionType type) {
  const bool is_number = type == OptionType::kInteger || type == OptionType::kReal ||
                         type == OptionType::kBytes || type == OptionType::kDuration;
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* flag = node.as_boolean(); flag && type == OptionType::kBool) {
    return flag->get() ? "true" : "false";
  }
  if (const auto* number = node.as_integer(); number && is_number) {
    return std::to_string(number->get());
  }
  if (const auto* number = node.as_floating_point(); number && type == OptionType::kReal) {
    return real_text(number->get());
  }
  return std::nullopt;
}

// In the order of the file, so that the first mistake is the one that is reported.
Result<std::vector<Setting>> flatten(const toml::table& root, const std::string& file) {
  std::vector<Setting> settings;
  for (const auto& [key, node] : root) {
    const toml::table* const section = node.as_table();
    if (section == nullptr) {
      settings.push_back({line_of(node), std::string(key.str()), &node});
      continue;
    }
    for (const auto& [inner_key, inner] : *section) {
      std::string name = std::string(key.str()) + "_" + std::string(inner_key.str());
      if (inner.is_table()) {
        return Error(Code::kInvalid, place(file, line_of(inner)) + ": section " +
                                         quoted_text(name) +
                                         " is nested; allowed: one level, [section] key = value");
      }
      settings.push_back({line_of(inner), std::move(name), &inner});
    }
  }
  std::stable_sort(settings.begin(), settings.end(),
                   [](const Setting& a, const Setting& b) { return a.line < b.line; });
  return settings;
}

}  // namespace

Status OptionTable::read_toml(OptionValues& values, std::string_view text,
                              const std::string& name) const {
  toml::table root;
  try {
    root = toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    return Error(Code::kInvalid, place(name, error.source().begin.line) +
                                     ": not valid TOML: " + std::string(error.description()));
  }
  TIERCEL_TRY_ASSIGN(const std::vector<Setting> settings, flatten(root, name));
  OptionValues read = values;
  std::map<std::string, size_t> lines;
  for (const Setting& setting : settings) {
    const std::string where = place(name, setting.line);
    std::string canonical = setting.name;
    std::replace(canonical.begin(), canonical.end(), '-', '_');
    const auto [first, is_new] = lines.emplace(canonical, setting.line);
    if (!is_new) {
      return Error(Code::kInvalid, where + ": " + canonical + " is set a second time, after line " +
                                       std::to_string(first->second) + "; leave one");
    }
    const Option* const option = find(canonical);
    // An unknown name has no type; set() then refuses it.
    const auto value = option == nullptr ? "" : value_text(*setting.node, option->type);
    if (!value) {
      return Error(Code::kInvalid,
                   where + ": " + canonical + " is " + description(*setting.node) +
                       "; allowed: " + allowed_text(*option) +
                       (option->type == OptionType::kString || option->type == OptionType::kChoice
                            ? ", in quotation marks"
                            : ""));
    }
    TIERCEL_TRY(set(read, canonical, *value, OptionSource::kFile, where));
  }
  values = std::move(read);
  return {};
}

Status OptionTable::read_file(OptionValues& values, const std::string& path) const {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    return Error(Code::kNotFound, "configuration file " + quoted_path(path) + " does not exist");
  }
  if (status.type() == std::filesystem::file_type::directory) {
    return Error(Code::kInvalid, "configuration file " + quoted_path(path) +
                                     " is a directory; allowed: a TOML file");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return Error(Code::kInvalid,
                 "configuration file " + quoted_path(path) + " cannot be opened; check its rights");
  }
  std::string text(kFileBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) {
    return Error(Code::kInvalid, "configuration file " + quoted_path(path) + " cannot be read");
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kFileBytesMax) {
    return Error(Code::kInvalid, "configuration file " + quoted_path(path) +
                                     " is too large; allowed: at most " +
                                     format_bytes(kFileBytesMax));
  }
  return read_toml(values, text, path);
}

}  // namespace tiercel
