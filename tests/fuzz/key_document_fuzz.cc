// SPDX-License-Identifier: Apache-2.0
//
// Key documents: there is one way to write a spec, so whatever is read is written back to the same
// bytes, and two documents never give one namespace.
#include <algorithm>

#include "tiercel/key.h"

#include "fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tiercel;  // NOLINT: the one function of this program
  const auto document = std::as_bytes(std::span(data, size));
  const Result<KvSpec> spec = parse_key_document(document);
  if (!spec) {
    fuzz::require(spec.code() == Code::kInvalid, "what is no key document is invalid");
    fuzz::require(!spec.error().message().empty(), "an error says what is wrong");
    return 0;
  }
  fuzz::require(spec->validate().has_value(), "a spec that was read is valid");
  const std::vector<std::byte> again = key_document(*spec);
  fuzz::require(std::ranges::equal(again, document), "a document is written as it was read");
  KvSpec other = *spec;
  other.model_id += "x";
  if (!other.validate()) return 0;
  fuzz::require(*make_namespace(other) != *make_namespace(*spec),
                "another spec has another namespace");
  return 0;
}
