#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# ./run.sh               installs what is missing, builds, and replays a real hour of requests
# ./run.sh --build-only  stops after the build: the tool is build/release/tiercel
# ./run.sh ARGUMENTS…    builds, then runs the tool with these arguments (try: ./run.sh --help)
# Everything but the tool's own output goes to standard error.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

if [ "${1-}" = --build-only ] && [ $# -gt 1 ]; then
  printf "run.sh: --build-only stands alone, but '%s' follows\n" "$2" >&2
  exit 2
fi

"$root/scripts/install-deps"
"$root/scripts/build" release

tool=$root/build/release/tiercel
if [ "${1-}" = --build-only ]; then
  printf 'the tool is %s\n' "$tool" >&2
  exit 0
fi
if [ $# -gt 0 ]; then
  exec "$tool" "$@"
fi

# The main job. Every block that comes back is compared with what it must be; a mismatch is exit 1.
cd "$root"
replay() {
  printf '\n$ build/release/tiercel replay %s\n' "$*" >&2
  build/release/tiercel replay "$@"
}
printf '\nOne hour of real requests through a host tier of 10,000 blocks, on two ranks.\n' >&2
replay --trace data/conversation_trace.jsonl --host-blocks 10000 --ranks 2
printf '\nA disk tier below 2,000 host blocks; then the same hour again: it starts warm.\n' >&2
disk=$(mktemp -d "${TMPDIR:-/tmp}/tiercel-run-XXXXXX")
trap 'rm -rf "$disk"' EXIT
for _ in 1 2; do
  replay --trace data/conversation_trace.jsonl --host-blocks 2000 --block-bytes 16KiB --no-optimum \
    --disk-path "$disk" --disk-bytes 3GiB
done
printf '\nThe same hour, with a store behind the host tier that keeps everything.\n' >&2
replay --trace data/conversation_trace.jsonl --host-blocks 10000 --block-bytes 4KiB --store memory:
