// SPDX-License-Identifier: Apache-2.0
//
// The framed scope: its three texts in the order of the struct, each with its length. The same
// bytes enter roots and foreign keys.
#pragma once

#include "tiercel/key.h"

#include "key/preimage.h"

namespace tiercel {

void put_scope(const Scope& scope, Preimage& preimage);

}  // namespace tiercel
