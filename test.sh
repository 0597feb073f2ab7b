#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# ./test.sh [PRESET] [ctest arguments…]: installs what is missing, builds PRESET (dev) and runs its
# tests. Examples: ./test.sh    ./test.sh asan    ./test.sh -R 'key/'    ./test.sh tsan -L unit
# Two presets test otherwise: `lint` compiles all with clang's checks and looks at layers and style,
# `fuzz` looks for inputs that break something, $TIERCEL_FUZZ_SECONDS (40) a target.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$root"

for argument; do
  case $argument in
    -h | --help)
      sed -n '4,/^set /{/^set /d; s/^# \{0,1\}//; p}' test.sh
      exit 0
      ;;
  esac
done

preset=dev
if [ $# -gt 0 ] && [ "${1#-}" = "$1" ]; then
  preset=$1
  shift
fi

scripts/install-deps --for "$preset"
# The release preset leaves the tests out; here they are the point.
# Where there is an nvcc, the CUDA copier is compiled too, with tests that need no GPU to be built.
cuda=OFF
if [ "$preset" = dev ] && command -v nvcc >/dev/null 2>&1; then
  cuda=ON
fi
scripts/build "$preset" -DTIERCEL_TESTS=ON -DTIERCEL_CUDA="$cuda"

# g++ 12's sanitizers refuse some address layouts of newer kernels; a fixed one always works.
fixed_layout=()
case $preset in
  asan | tsan)
    if setarch "$(uname -m)" -R true 2>/dev/null; then
      fixed_layout=(setarch "$(uname -m)" -R)
    fi
    ;;
esac
# What the build has written goes to the disk first: tests of the disk tier would stand behind it
# for seconds, and give the disk up as one that hangs.
sync
exec ${fixed_layout[@]+"${fixed_layout[@]}"} ctest --preset "$preset" "$@"
