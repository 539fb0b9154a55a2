#!/usr/bin/env bash
# Builds liboctavo itself with the headers of an imaginary next minor, and runs old and new programs and
# plugins through it: the proof that liboctavo and its kernels look at sizes, too. Builds the library
# anew, so it takes minutes and is not a part of tests/run.sh.
#
# Usage: next_library.sh [work directory]   default: build/next_library
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tests/environment/packages.sh
source tests/environment/packages.sh
root=$PWD
work=$(realpath -m "${1:-build/next_library}")
tree=$work/tree
rm -rf "$tree"
mkdir -p "$tree"
git ls-files -z CMakeLists.txt sdk kernels plugins host_adapters samples/minimal_plugin |
  tar -c --null -T - | tar -x -C "$tree"
python3 tests/abi/next_headers.py sdk/include "$tree/sdk/include"
# What everyone does who adds a function to a table.
sed -i 's/return std::tuple(/&MAY(next_function), /' "$tree/sdk/src/plugin/complete.cpp"

use_ccache "$tree"
cmake -S "$tree" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O0 \
  -DCMAKE_C_FLAGS_RELEASE=-O0 -DOCTAVO_BUILD_TESTS=OFF -DOCTAVO_BUILD_SAMPLES=OFF \
  "${OCTAVO_COMPILER_LAUNCHER[@]}" >"$work/configure.log"
cmake --build "$work/build" --target octavo octavo_probe --parallel "${OCTAVO_JOBS:-2}"

flags=(-std=gnu11 -O2 "-I$tree/sdk/include" "-I$root")
gcc "${flags[@]}" tests/abi/golden/program.c -o "$work/program" -ldl
gcc "${flags[@]}" -shared -fPIC -fvisibility=hidden \
  -Wl,--version-script=sdk/cmake/plugin_exports.map tests/abi/golden/next.c -o "$work/next.so"

library=$work/build/lib/liboctavo.so failed=0 count=0
# try <program> <plugin> <age of the program>
try() {
  local found
  count=$((count + 1))
  if found=$(python3 tests/abi/combinations.py library "$1" "$library" "$2" "$3" new); then
    echo "ok    $3 program, new liboctavo, ${2#"$root"/}"
  else
    echo "FAIL  $3 program, new liboctavo, ${2#"$root"/}: $found"
    failed=$((failed + 1))
  fi
}
try "$work/program" "$work/next.so" new
for snapshot in tests/abi/v*/; do
  try "$root/${snapshot}golden/program" "$work/next.so" old
  for plugin in "$root/$snapshot"golden/*/*.so; do
    try "$root/${snapshot}golden/program" "$plugin" old
    try "$work/program" "$plugin" new
  done
done
echo "$count combinations, $failed failed"
[[ $failed -eq 0 ]]
