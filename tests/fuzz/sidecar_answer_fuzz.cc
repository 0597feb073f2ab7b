// SPDX-License-Identifier: Apache-2.0
//
// What the sidecar of a Mooncake store says: a message of any bytes is refused or one of the five
// kinds, no larger than its bytes; every code means something for every request.
#include <span>
#include <string_view>

#include "fuzz_target.h"
#include "store/mooncake/wire.h"

namespace tiercel::fuzz {
namespace {

using mooncake::Answer;
using mooncake::Request;

void check_codes(const mooncake::Message& message, uint64_t bytes) {
  for (const int64_t answer : message.codes) {
    for (const Request kind : {Request::kExists, Request::kGet, Request::kPut, Request::kReplace,
                               Request::kRemove, Request::kClear}) {
      const Code code = mooncake::code_of(kind, answer, bytes);
      const int64_t length = mooncake::is_read_here(answer) ? answer - mooncake::kReadHere : answer;
      require(kind != Request::kGet || code != Code::kOk || length == static_cast<int64_t>(bytes),
              "only an object of the exact length has been read");
    }
  }
}

}  // namespace
}  // namespace tiercel::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tiercel::fuzz;  // NOLINT: the one function of this program
  Input input({data, size});
  const uint64_t bytes = input.u16();
  const std::string_view rest = input.rest();
  const auto message = tiercel::mooncake::decode(std::as_bytes(std::span(rest)));
  if (!message) {
    require(message.code() == tiercel::Code::kInvalid, "what is no message is invalid");
    return 0;
  }
  require(message->kind >= Answer::kStage && message->kind <= Answer::kNote, "a kind is known");
  require(message->codes.size() * sizeof(int64_t) + message->text.size() <= rest.size(),
          "a message has no more than came");
  check_codes(*message, bytes);
  return 0;
}
