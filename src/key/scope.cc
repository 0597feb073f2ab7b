// SPDX-License-Identifier: Apache-2.0

#include "key/scope.h"

namespace tiercel {

void put_scope(const Scope& scope, Preimage& preimage) {
  preimage.put_text(scope.adapter_id);
  preimage.put_text(scope.adapter_revision);
  preimage.put_text(scope.tenant_salt);
}

RootKey make_root(const Namespace& name_space, const Scope& scope) {
  Preimage preimage(kRootTag, name_space.bytes);
  put_scope(scope, preimage);
  return RootKey{preimage.digest()};
}

BlockKey root_as_parent(const RootKey& root) { return BlockKey{root.bytes}; }

}  // namespace tiercel
