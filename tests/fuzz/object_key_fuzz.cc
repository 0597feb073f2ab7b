// SPDX-License-Identifier: Apache-2.0
//
// Names of objects: what is read is written as it stood, what is written can be read, and names
// hold nothing that a path or a URL would take for something else.
#include <algorithm>

#include "tiercel/key.h"

#include "fuzz_target.h"

namespace tiercel::fuzz {
namespace {

void check_text(std::string_view text) {
  const Result<ObjectKey> key = ObjectKey::parse(text);
  if (!key) {
    require(key.code() == Code::kInvalid, "what is no object key is invalid");
    return;
  }
  require(key->text() == text, "an object key is written as it was read");
  require(std::ranges::all_of(text,
                              [](char c) {
                                return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') ||
                                       c == 'v' || c == '-';
                              }),
          "an object key is safe in paths and URLs");
}

void check_made(Input input) {
  Namespace name_space;
  input.fill(name_space.bytes);
  BlockKey block_key;
  input.fill(block_key.bytes);
  const GroupId group(input.byte());
  const Slice slice{input.u16(), input.u16()};
  const ObjectKey made(name_space, group, slice, block_key);
  const Result<ObjectKey> read = ObjectKey::parse(made.text());
  require(read.has_value() && *read == made, "an object key that was made can be read");
  require(made.text().starts_with(object_key_prefix(name_space)),
          "an object key starts with the prefix of its namespace");
  require(made.text().ends_with(block_key.hex()), "an object key ends with the block key");
  const Result<BlockKey> back = BlockKey::from_hex(block_key.hex());
  require(back.has_value() && *back == block_key, "digits give the digest again");
}

}  // namespace
}  // namespace tiercel::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tiercel::fuzz;  // NOLINT: the one function of this program
  const Input input({data, size});
  check_text(input.rest());
  check_made(input);
  return 0;
}
