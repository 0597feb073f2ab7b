#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# ./run.sh               installs what is missing, builds, and replays a real hour of requests
# ./run.sh --build-only  stops after the build: the tool is build/release/tiercel
# ./run.sh mooncake      two processes in turn over one Mooncake pool on this machine
# ./run.sh ARGUMENTS…    builds, then runs the tool with these arguments (try: ./run.sh --help)
# Everything but the tool's own output goes to standard error.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

if [ "${1-}" = --build-only ] && [ $# -gt 1 ]; then
  printf "run.sh: --build-only stands alone, but '%s' follows\n" "$2" >&2
  exit 2
fi

if [ "${1-}" = mooncake ] && [ $# -gt 1 ]; then
  printf "run.sh: mooncake stands alone, but '%s' follows\n" "$2" >&2
  exit 2
fi

"$root/scripts/install-deps"
[ "${1-}" != mooncake ] || "$root/scripts/install-deps" --for mooncake
"$root/scripts/build" release

tool=$root/build/release/tiercel
if [ "${1-}" = --build-only ]; then
  printf 'the tool is %s\n' "$tool" >&2
  exit 0
fi
if [ "${1-}" = mooncake ]; then
  cd "$root"
  pool=$(mktemp -d "${TMPDIR:-/tmp}/tiercel-run-XXXXXX")
  mkfifo "$pool/commands"
  # It ends with its input, which ends with this shell.
  scripts/mooncake-dev serve --segment 2GiB <"$pool/commands" >"$pool/url" &
  exec 3>"$pool/commands"
  trap 'exec 3>&-; wait; rm -rf "$pool"' EXIT
  until [ -s "$pool/url" ]; do
    kill -0 $! 2>/dev/null || exit 1
    sleep 0.1
  done
  url=$(cat "$pool/url")
  build/release/tiercel store check --store "$url"
  printf '\nThe same requests by two processes, one after the other: what the first one has\n' >&2
  printf 'computed, the second one finds in the pool.\n' >&2
  for _ in 1 2; do
    build/release/tiercel replay --trace data/conversation_trace.jsonl --limit 2000 --ranks 2 \
      --rank-host process --host-blocks 2000 --block-bytes 16KiB --no-optimum --store "$url"
  done
  exit
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
