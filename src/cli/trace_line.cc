// SPDX-License-Identifier: Apache-2.0
#include "cli/trace_line.h"

#include <new>
#include <string>

#include <nlohmann/json.hpp>

#include "cli/trace.h"

namespace tiercel {
namespace {

using Json = nlohmann::json;

constexpr size_t kShownBytesMax = 48;

// A value as it may stand in a message: short, printable.
std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kShownBytesMax) text = text.substr(0, kShownBytesMax) + "…";
  return text;
}

Result<uint64_t> read_number(const Json& value, const std::string& name, uint64_t maximum) {
  // A negative zero is signed.
  const bool is_zero = value.is_number_integer() && value.get<int64_t>() == 0;
  if (!is_zero && (!value.is_number_unsigned() || value.get<uint64_t>() > maximum)) {
    return Error(Code::kInvalid, name + " is " + shown(value) + "; allowed: an integer from 0 to " +
                                     std::to_string(maximum));
  }
  return value.get<uint64_t>();
}

Result<uint64_t> read_member(const Json& object, const char* name, uint64_t maximum) {
  const auto member = object.find(name);
  if (member == object.end()) {
    return Error(Code::kInvalid, std::string("there is no \"") + name +
                                     "\"; a request has timestamp, input_length, output_length "
                                     "and hash_ids");
  }
  return read_number(*member, name, maximum);
}

Status read_hash_ids(const Json& object, TraceLine* line) {
  const auto member = object.find("hash_ids");
  if (member == object.end()) {
    return Error(Code::kInvalid,
                 "there is no \"hash_ids\"; a request has timestamp, input_length, output_length "
                 "and hash_ids");
  }
  if (!member->is_array()) {
    return Error(Code::kInvalid,
                 "hash_ids is " + shown(*member) + "; allowed: an array of integers");
  }
  const uint64_t expected = (uint64_t{line->input_length} + kTokensPerId - 1) / kTokensPerId;
  if (member->size() != expected) {
    return Error(Code::kInvalid,
                 "hash_ids has " + std::to_string(member->size()) + " entries; allowed: exactly " +
                     std::to_string(expected) + ", one per " + std::to_string(kTokensPerId) +
                     " tokens of input_length " + std::to_string(line->input_length));
  }
  line->hash_ids.reserve(member->size());
  for (size_t i = 0; i < member->size(); ++i) {
    const Json& id = (*member)[i];
    if (id.is_number_unsigned() && id.get<uint64_t>() <= kHashIdMax) {
      line->hash_ids.push_back(id.get<uint64_t>());
      continue;
    }
    return read_number(id, "hash_ids[" + std::to_string(i) + "]", kHashIdMax).error();
  }
  return {};
}

Status read_object(const Json& object, TraceLine* line) {
  TIERCEL_TRY_ASSIGN(line->timestamp_ms, read_member(object, "timestamp", kTimestampMsMax));
  TIERCEL_TRY_ASSIGN(const uint64_t input, read_member(object, "input_length", kInputLengthMax));
  TIERCEL_TRY_ASSIGN(const uint64_t output, read_member(object, "output_length", kOutputLengthMax));
  line->input_length = static_cast<uint32_t>(input);
  line->output_length = static_cast<uint32_t>(output);
  return read_hash_ids(object, line);
}

// The parser would take a NUL for the end of the text, and build all that it reads before anybody
// can look at it: a byte of text may cost it a hundred of memory.
Status check_bounds(std::string_view text) {
  size_t depth = 0;
  size_t values = 1;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\0') {
      return Error(Code::kInvalid, "broken JSON at byte " + std::to_string(i + 1) +
                                       " of the line, which is NUL; allowed: one JSON object a "
                                       "line");
    }
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
      continue;
    }
    in_string = c == '"';
    if (c == '[' || c == '{') ++depth;
    if ((c == ']' || c == '}') && depth > 0) --depth;
    if (c == ',') ++values;
    if (depth > kLineDepthMax) {
      return Error(Code::kInvalid, "the line nests arrays and objects " + std::to_string(depth) +
                                       " deep at byte " + std::to_string(i + 1) +
                                       "; allowed: up to " + std::to_string(kLineDepthMax));
    }
    if (values > kLineValuesMax) {
      return Error(Code::kInvalid, "the line has more than " + std::to_string(kLineValuesMax) +
                                       " values; allowed: one request a line");
    }
  }
  return {};
}

}  // namespace

Status parse_trace_line(std::string_view text, TraceLine* line) {
  line->hash_ids.clear();
  TIERCEL_TRY(check_bounds(text));
  try {
    const Json object = Json::parse(text);
    if (!object.is_object()) {
      return Error(Code::kInvalid, "this is " + shown(object) +
                                       "; allowed: a JSON object such as {\"timestamp\": 0, "
                                       "\"input_length\": 512, \"output_length\": 1, "
                                       "\"hash_ids\": [0]}");
    }
    return read_object(object, line);
  } catch (const Json::parse_error& error) {
    return Error(Code::kInvalid, "broken JSON at byte " + std::to_string(error.byte) +
                                     " of the line" + "; allowed: one JSON object a line");
  } catch (const Json::out_of_range&) {
    return Error(Code::kInvalid, "there is a number that is too large; allowed: up to 1.8e308");
  } catch (const Json::exception& error) {
    return Error(Code::kInvalid, "the line cannot be read as JSON (" + std::to_string(error.id) +
                                     "); allowed: one JSON object a line");
  }
}

}  // namespace tiercel
