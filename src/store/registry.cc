// SPDX-License-Identifier: Apache-2.0
#include "store/registry.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/assert.h"

namespace tiercel {
namespace {

bool is_name(std::string_view text) {
  if (text.empty() || text.front() < 'a' || text.front() > 'z') return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

// Names and URLs come from outside, some of them decoded.
std::string quoted(std::string_view text) { return "'" + escaped_path(text) + "'"; }

std::string joined(const std::vector<std::string_view>& names) {
  if (names.empty()) return "none";
  std::string list;
  for (std::string_view name : names) {
    if (!list.empty()) list += ", ";
    list += name;
  }
  return list;
}

std::string unknown_name_text(std::string_view kind, std::string_view name,
                              const std::vector<std::string_view>& known) {
  std::string text = "unknown " + std::string(kind) + " " + quoted(name);
  const std::string_view nearest = nearest_name(name, known);
  if (!nearest.empty()) text += "; did you mean " + quoted(nearest) + "?";
  return text + "; known: " + joined(known);
}

std::optional<unsigned> hex_digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A' + 10);
  return std::nullopt;
}

// Makes the errors of one URL: each names the whole of it.
class UrlErrors {
 public:
  explicit UrlErrors(std::string_view url) : url_(url) {}
  Error operator()(const std::string& what) const { return Error(Code::kInvalid, where() + what); }
  std::string where() const { return "store URL " + quoted(url_) + ": "; }

 private:
  std::string_view url_;
};

Result<std::string> percent_decoded(std::string_view text, const UrlErrors& error) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    const auto high = i + 1 < text.size() ? hex_digit(text[i + 1]) : std::nullopt;
    const auto low = i + 2 < text.size() ? hex_digit(text[i + 2]) : std::nullopt;
    if (!high || !low) {
      return error("'%' must be followed by two hexadecimal digits in " + quoted(text) +
                   "; write a '%' itself as %25");
    }
    const unsigned value = *high * 16 + *low;
    if (value == 0) return error("%00 is not allowed in " + quoted(text));
    decoded += static_cast<char>(value);
    i += 2;
  }
  return decoded;
}

struct NameValue {
  std::string name;
  std::string value;
};

// The URL taken apart, before any name in it is looked up.
struct UrlParts {
  std::vector<std::string_view> wrappers;  // outermost first
  std::string_view scheme;
  std::string path;
  std::vector<NameValue> options;
};

Result<UrlParts> split_url(std::string_view url, const UrlErrors& error) {
  for (char c : url) {
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f) {
      return error("spaces and control characters must be percent-encoded (a space is %20)");
    }
  }
  const size_t colon = url.find(':');
  if (colon == std::string_view::npos) {
    return error("there is no ':'; the form is scheme:path?option=value, such as memory:");
  }
  UrlParts parts;
  std::string_view head = url.substr(0, colon);
  for (size_t plus = head.find('+'); plus != std::string_view::npos; plus = head.find('+')) {
    parts.wrappers.push_back(head.substr(0, plus));
    head.remove_prefix(plus + 1);
  }
  parts.scheme = head;
  for (std::string_view wrapper : parts.wrappers) {
    if (!is_name(wrapper)) {
      return error("the wrapper " + quoted(wrapper) +
                   " in front of a '+' is not a lower-case word");
    }
  }
  if (!is_name(parts.scheme)) {
    return error("the scheme " + quoted(parts.scheme) +
                 " in front of the ':' is not a lower-case word");
  }

  const std::string_view rest = url.substr(colon + 1);
  const size_t question = rest.find('?');
  TIERCEL_TRY_ASSIGN(parts.path, percent_decoded(rest.substr(0, question), error));
  if (question == std::string_view::npos) return parts;
  std::string_view query = rest.substr(question + 1);
  while (!query.empty()) {
    const size_t end = query.find('&');
    const std::string_view pair = query.substr(0, end);
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      return error("the option " + quoted(pair) + " is not of the form name=value");
    }
    NameValue option;
    TIERCEL_TRY_ASSIGN(option.name, percent_decoded(pair.substr(0, equals), error));
    TIERCEL_TRY_ASSIGN(option.value, percent_decoded(pair.substr(equals + 1), error));
    std::replace(option.name.begin(), option.name.end(), '-', '_');
    for (const NameValue& earlier : parts.options) {
      if (earlier.name == option.name) {
        return error("the option " + quoted(option.name) + " stands twice");
      }
    }
    parts.options.push_back(std::move(option));
    if (end == std::string_view::npos) break;
    query.remove_prefix(end + 1);
    if (query.empty()) return error("there is nothing after the last '&'");
  }
  return parts;
}

bool share_an_option(const OptionTable& a, const OptionTable& b) {
  return std::any_of(a.options().begin(), a.options().end(),
                     [&](const Option& option) { return b.find(option.name) != nullptr; });
}

template <typename Infos, typename Name>
auto find_named(const Infos& infos, std::string_view name, Name name_of) {
  const auto found = std::find_if(infos.begin(), infos.end(),
                                  [&](const auto& info) { return info.*name_of == name; });
  return found == infos.end() ? nullptr : &*found;
}

template <typename Infos, typename Name>
std::vector<std::string_view> names_of(const Infos& infos, Name name_of) {
  std::vector<std::string_view> names;
  names.reserve(infos.size());
  for (const auto& info : infos) names.push_back(info.*name_of);
  return names;
}

// An option table of the URL, with the values that it has got so far.
struct Section {
  const OptionTable* table;
  OptionValues values;
};

Status read_options(const std::vector<NameValue>& options, std::vector<Section>& sections,
                    const UrlErrors& error) {
  std::vector<std::string_view> known;
  for (const Section& section : sections) {
    for (const Option& option : section.table->options()) known.push_back(option.name);
  }
  for (const NameValue& option : options) {
    const auto owner = std::find_if(sections.begin(), sections.end(), [&](const Section& section) {
      return section.table->find(option.name) != nullptr;
    });
    if (owner == sections.end()) return error(unknown_name_text("option", option.name, known));
    const Status set =
        owner->table->set(owner->values, option.name, option.value, OptionSource::kCommandLine, "");
    if (!set) return error(set.error().message());
  }
  return {};
}

}  // namespace

void StoreRegistry::add(StoreInfo info) {
  TIERCEL_ASSERT(is_name(info.scheme), "a scheme is a lower-case word");
  TIERCEL_ASSERT(info.open != nullptr, "a store needs a function that opens it");
  TIERCEL_ASSERT(find_named(stores_, info.scheme, &StoreInfo::scheme) == nullptr,
                 "two stores have the same scheme");
  for (const StoreWrapperInfo& wrapper : wrappers_) {
    TIERCEL_ASSERT(!share_an_option(info.options, wrapper.options),
                   "a store and a wrapper have an option of the same name");
  }
  stores_.push_back(std::move(info));
}

void StoreRegistry::add_wrapper(StoreWrapperInfo info) {
  TIERCEL_ASSERT(is_name(info.name), "a wrapper's name is a lower-case word");
  TIERCEL_ASSERT(info.wrap != nullptr, "a wrapper needs a function that wraps");
  for (const StoreInfo& store : stores_) {
    TIERCEL_ASSERT(!share_an_option(info.options, store.options),
                   "a store and a wrapper have an option of the same name");
  }
  for (const StoreWrapperInfo& wrapper : wrappers_) {
    TIERCEL_ASSERT(wrapper.name != info.name, "two wrappers have the same name");
    TIERCEL_ASSERT(!share_an_option(info.options, wrapper.options),
                   "two wrappers have an option of the same name");
  }
  wrappers_.push_back(std::move(info));
}

Result<std::unique_ptr<Store>> StoreRegistry::open(std::string_view url,
                                                   const StoreContext& context,
                                                   std::string_view outer_wrapper) const {
  const UrlErrors error(url);
  TIERCEL_TRY_ASSIGN(UrlParts parts, split_url(url, error));
  if (!outer_wrapper.empty() && std::find(parts.wrappers.begin(), parts.wrappers.end(),
                                          outer_wrapper) == parts.wrappers.end()) {
    parts.wrappers.insert(parts.wrappers.begin(), outer_wrapper);
  }

  const StoreInfo* store = find_named(stores_, parts.scheme, &StoreInfo::scheme);
  if (store == nullptr) {
    std::string text =
        unknown_name_text("store", parts.scheme, names_of(stores_, &StoreInfo::scheme));
    if (find_named(wrappers_, parts.scheme, &StoreWrapperInfo::name) != nullptr) {
      text += "; " + quoted(parts.scheme) + " is a wrapper: write it as " +
              std::string(parts.scheme) + "+scheme:";
    }
    return error(text);
  }
  std::vector<const StoreWrapperInfo*> wrappers;
  std::vector<Section> sections{{&store->options, store->options.defaults()}};
  for (std::string_view name : parts.wrappers) {
    const StoreWrapperInfo* wrapper = find_named(wrappers_, name, &StoreWrapperInfo::name);
    if (wrapper == nullptr) {
      return error(
          unknown_name_text("wrapper", name, names_of(wrappers_, &StoreWrapperInfo::name)));
    }
    if (std::find(wrappers.begin(), wrappers.end(), wrapper) != wrappers.end()) {
      return error("the wrapper " + quoted(name) + " stands twice");
    }
    wrappers.push_back(wrapper);
    sections.push_back({&wrapper->options, wrapper->options.defaults()});
  }
  TIERCEL_TRY(read_options(parts.options, sections, error));

  StoreUrl parsed{std::string(url), store->scheme, std::move(parts.path), sections[0].values};
  TIERCEL_TRY_ASSIGN(std::unique_ptr<Store> opened, store->open(parsed, context));
  for (size_t i = wrappers.size(); i-- > 0;) {
    parsed.options = sections[i + 1].values;
    TIERCEL_TRY_ASSIGN(opened, wrappers[i]->wrap(std::move(opened), parsed, context));
  }
  return opened;
}

}  // namespace tiercel
