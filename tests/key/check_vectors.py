#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recomputes data/key_vectors.json from docs/format.md alone; exits 1 if anything differs.

Shares no code with the C++ library, so that both can only agree by following the page."""

import hashlib
import json
import pathlib
import struct
import sys

TEXT_FIELDS = ("model_id", "weights_revision", "kv_dtype", "kv_scale_scheme", "positional_scheme",
               "layout_tag")
GROUP_FIELDS = ("attention", "layer_count", "kv_head_count", "head_dim_k", "head_dim_v",
                "window_tokens")
SCOPE_FIELDS = ("adapter_id", "adapter_revision", "tenant_salt")


def sha256(preimage):
    return hashlib.sha256(preimage).digest()


def u32(number):
    return struct.pack("<I", number)


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return u32(len(raw)) + raw


def key_document(spec):
    groups = b"".join(u32(group[name]) for group in spec["groups"] for name in GROUP_FIELDS)
    return (b"TCKD" + u32(1) + b"".join(text(spec[name]) for name in TEXT_FIELDS)
            + u32(spec["block_tokens"]) + u32(len(spec["groups"])) + groups)


def framed_scope(scope):
    return b"".join(text(scope[name]) for name in SCOPE_FIELDS)


def root(namespace, scope):
    return sha256(b"TCRT" + namespace + framed_scope(scope))


def block_key(tag, parent, tokens, extras):
    framed = b"".join(text(kind) + text(content) + struct.pack("<q", offset)
                      for kind, content, offset in extras)
    return sha256(tag + parent + u32(len(tokens)) + b"".join(map(u32, tokens))
                  + u32(len(extras)) + framed)


def sequence(parent, block_tokens, tokens, items):
    """Keys of the full blocks, and of the tail or None."""
    order = sorted((item["begin"], item["kind"].encode(), bytes.fromhex(item["content_hash"]),
                    item["end"]) for item in items)
    keys, partial = [], None
    for start in range(0, len(tokens), block_tokens):
        block = tokens[start:start + block_tokens]
        extras = [(kind, content, begin - start) for begin, kind, content, end in order
                  if begin < start + len(block) and end > start]
        if len(block) == block_tokens:
            parent = block_key(b"TCBK", parent, block, extras)
            keys.append(parent)
        else:
            partial = block_key(b"TCPB", parent, block, extras)
    return keys, partial


def foreign_key(engine_hash, scope, scope_included):
    if scope_included or not any(scope.values()):
        return engine_hash
    return sha256(b"TCFK" + framed_scope(scope) + engine_hash)


def object_key(namespace, group, rank, rank_count, key):
    return f"v1-{namespace[:8].hex()}-{group:02x}-{rank:04x}{rank_count:04x}-{key.hex()}"


def crc32c(data):
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def frame(fields):
    body = struct.pack("<8sII32s32sHHBBBxQQQI72x", b"TIERCELF", 1, fields["token_count"],
                       bytes.fromhex(fields["namespace"]), bytes.fromhex(fields["block_key"]),
                       fields["rank"], fields["rank_count"], fields["group"], fields["codec"],
                       fields["checksum_kind"], fields["stored_bytes"], fields["raw_bytes"],
                       fields["writer_epoch"], fields["checksum"])
    return body + u32(crc32c(body))


def recompute(vectors):
    """The same vectors with every output computed anew."""
    unhex = bytes.fromhex
    for v in vectors["specs"]:
        v["key_document"] = key_document(v["spec"]).hex()
        v["namespace"] = sha256(key_document(v["spec"])).hex()
    for v in vectors["roots"]:
        v["root"] = root(unhex(v["namespace"]), v["scope"]).hex()
    for v in vectors["blocks"]:
        extras = [(e["kind"], unhex(e["content"]), e["offset_tokens"]) for e in v["extras"]]
        for name, tag in (("block_key", b"TCBK"), ("partial_block_key", b"TCPB")):
            v[name] = block_key(tag, unhex(v["parent"]), v["tokens"], extras).hex()
    for v in vectors["sequences"]:
        keys, partial = sequence(unhex(v["root"]), v["block_tokens"], v["tokens"], v["items"])
        v["keys"] = [key.hex() for key in keys]
        v["partial_key"] = partial.hex() if partial else None
    for v in vectors["foreign_keys"]:
        v["block_key"] = foreign_key(unhex(v["engine_hash"]), v["scope"],
                                     v["scope_included"]).hex()
    for v in vectors["object_keys"]:
        v["object_key"] = object_key(unhex(v["namespace"]), v["group"], v["rank"],
                                     v["rank_count"], unhex(v["block_key"]))
    for v in vectors["frames"]:
        v["bytes"] = frame(v["fields"]).hex()
    return vectors


def main():
    path = pathlib.Path(__file__).resolve().parents[2] / "data" / "key_vectors.json"
    stored, computed = json.loads(path.read_text()), recompute(json.loads(path.read_text()))
    wrong = [f"{kind}[{index}]" for kind in computed
             for index, (a, b) in enumerate(zip(stored[kind], computed[kind])) if a != b]
    print("\n".join(f"differs: {name}" for name in wrong)
          or f"{sum(map(len, computed.values()))} vectors agree")
    return 1 if wrong or not all(computed.values()) or crc32c(b"123456789") != 0xE3069283 else 0


if __name__ == "__main__":
    sys.exit(main())
