#!/usr/bin/env bash
# Compiles every header of the contract alone, included twice, in each language it promises. Takes a
# minute, since that is a compiler call for each header and standard.
#
# Usage: compile_headers.sh <include dir> <C compiler> <C++ compiler> <standard of the C++ wrappers>
# Exits 77, which ctest reports as a skip, when the compiler is not installed.
set -euo pipefail

include_dir=$1 cc=$2 cxx=$3 wrappers=$4
for compiler in "$cc" "$cxx"; do
  if ! command -v "$compiler" >/dev/null; then
    echo "SKIPPED: $compiler is not installed, so nothing was compiled with it (apt-get install clang)"
    exit 77
  fi
done

warnings=(-Wall -Wextra -Wpedantic -Wpadded -Werror)
compiled=0 failed=0

# compile <compiler> <language> <standard> <header> [flags...]
compile() {
  local compiler=$1 language=$2 standard=$3 header=$4
  shift 4
  if ! printf '#include "octavo/%s"\n#include "octavo/%s"\n' "$header" "$header" |
    "$compiler" -x "$language" "-std=$standard" -I"$include_dir" "$@" -fsyntax-only -; then
    echo "octavo/$header does not compile alone as $standard with $compiler"
    failed=$((failed + 1))
  fi
  compiled=$((compiled + 1))
}

for path in "$include_dir"/octavo/*.h "$include_dir"/octavo/draft/*.h; do
  header=${path#"$include_dir/octavo/"}
  for standard in c11 c17; do
    compile "$cc" c "$standard" "$header" "${warnings[@]}" -Wc++-compat
  done
  for standard in c++17 c++20; do
    compile "$cxx" c++ "$standard" "$header" "${warnings[@]}"
  done
done
# The C++ wrappers own no layout, so padding is no fault in them. Their parts compile alone with gcc, in
# one standard; what hosts and plugins include, with each compiler in both.
for path in "$include_dir"/octavo/*.hpp "$include_dir"/octavo/hpp/*.hpp \
  "$include_dir"/octavo/hpp/*/*.hpp; do
  header=${path#"$include_dir/octavo/"}
  for standard in c++17 c++20; do
    [[ $header != */* || ($standard == "$wrappers" && $cxx == g++*) ]] || continue
    compile "$cxx" c++ "$standard" "$header" \
      -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor -Werror
  done
done

# The check must see a fault: a struct with a hole in it. clang lays out only what is used, so there
# the layout test is what finds holes in the headers.
hole='typedef struct hole { char c; long l; } hole; extern int used[sizeof(hole)];'
if echo "$hole" | "$cc" -x c -std=c11 "${warnings[@]}" -fsyntax-only - 2>/dev/null; then
  echo "$cc accepts a padded struct under -Wpadded -Werror, so this test proves nothing"
  failed=$((failed + 1))
fi

echo "$compiled compilations with $cc and $cxx, $failed failed"
[[ $compiled -ge 40 && $failed -eq 0 ]]
