// SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "tiercel/key.h"

#include "key/scope.h"

namespace tiercel {
namespace {

bool is_sha256(EngineHash function) {
  return function == EngineHash::kSha256 || function == EngineHash::kSha256Cbor;
}

const char* name_of(EngineHash function) {
  switch (function) {
    case EngineHash::kSha256:
      return "sha256";
    case EngineHash::kSha256Cbor:
      return "sha256_cbor";
    case EngineHash::kXxh3:
      return "xxh3";
    case EngineHash::kXxh3Cbor:
      return "xxh3_cbor";
    case EngineHash::kUnknown:
      break;
  }
  return "unknown";
}

}  // namespace

Result<BlockKey> foreign_block_key(EngineHash function, std::span<const std::byte> engine_hash,
                                   const Scope& scope, bool scope_included) {
  if (!is_sha256(function)) {
    return Error(Code::kUnsupported,
                 std::string("the engine's block hash function is ") + name_of(function) +
                     "; allowed: sha256, sha256_cbor (else let Tiercel hash the tokens)");
  }
  BlockKey key;
  if (engine_hash.size() != key.bytes.size()) {
    return Error(Code::kInvalid,
                 "the engine's block hash has " + std::to_string(engine_hash.size()) +
                     " bytes; allowed: " + std::to_string(key.bytes.size()) + " (not shortened)");
  }
  std::copy(engine_hash.begin(), engine_hash.end(), key.bytes.begin());
  if (scope_included || scope.empty()) return key;
  Preimage preimage(kForeignKeyTag);
  put_scope(scope, preimage);
  preimage.put_bytes(engine_hash);
  return BlockKey{preimage.digest()};
}

}  // namespace tiercel
