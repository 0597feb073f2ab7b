// SPDX-License-Identifier: Apache-2.0
#include "tiercel/status.h"

namespace tiercel {

std::string_view to_string(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kNotFound:
      return "not_found";
    case Code::kCorrupt:
      return "corrupt";
    case Code::kNoSpace:
      return "no_space";
    case Code::kBusy:
      return "busy";
    case Code::kTimeout:
      return "timeout";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kInvalid:
      return "invalid";
    case Code::kCancelled:
      return "cancelled";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kInternal:
      return "internal";
  }
  return "unknown";
}

std::string Error::to_string() const {
  const std::string_view word = tiercel::to_string(code_);
  std::string text;
  text.reserve(word.size() + 2 + message_.size());
  text.append(word);
  if (!message_.empty()) {
    text.append(": ");
    text.append(message_);
  }
  return text;
}

}  // namespace tiercel
