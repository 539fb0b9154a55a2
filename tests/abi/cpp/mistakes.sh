#!/usr/bin/env bash
# A mistake in a backend on octavo/plugin.hpp is one clear line of the compiler.
#
# Usage: mistakes.sh <include dir> <C++ compiler>
# Exits 77, which ctest reports as a skip, when the compiler is not installed.
set -euo pipefail

include_dir=$1 cxx=$2
here=$(dirname "${BASH_SOURCE[0]}")
command -v "$cxx" >/dev/null || {
  echo "SKIPPED: $cxx is not installed, so nothing was compiled with it"
  exit 77
}

limit=()
[[ $("$cxx" --version) != *clang* ]] || limit=(-ferror-limit=0)  # it would stop after 20

# errors <standard> <source>: the lines of a compilation, which fails, that state an error.
errors() {
  if "$cxx" -x c++ "-std=$1" -I"$include_dir" "${limit[@]}" -fsyntax-only - <"$2" 2>"$log"; then
    echo "$2 compiles as $1, though it must not" >&2
    exit 1
  fi
  grep -E '(^|: )(fatal )?error:' "$log"
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
# expect <standard> <source>: each text of standard input is in one error, and there are no others.
expect() {
  local found text count=0
  found=$(errors "$1" "$2")
  while read -r text; do
    count=$((count + 1))
    [[ $(grep -cF "$text" <<<"$found") -eq 1 ]] || {
      echo "$cxx, $1: expected one error with \"$text\""
      failed=1
    }
  done
  [[ $(wc -l <<<"$found") -eq $count ]] || failed=1
  [[ $failed -eq 0 ]] || {
    echo "$cxx, $1: expected $count errors, found:"
    echo "$found"
    exit 1
  }
  echo "$cxx, $1: $count mistakes, $count lines"
}

expect c++17 "$here/mistakes.cpp" < <(sed -n 's,^// expect: ,,p' "$here/mistakes.cpp")
# The whole sample, so that nothing follows from what C++14 lacks but the end of the compilation.
sample=$here/../../../samples/current_plugin/current.cpp
printf '#define OCTAVO_PLUGIN_%s "1"\n' ID VERSION | cat - "$sample" >"$log.cpp"
trap 'rm -f "$log" "$log.cpp"' EXIT
expect c++14 "$log.cpp" <<'END'
octavo/plugin.hpp needs C++17: compile with -std=c++17 or later
octavo/hpp/plugin/needs_cpp17.hpp
END
# A hook of the sample under another name, through OCTAVO_PLUGIN itself.
sed -i 's/void cast_weight(/void cast_weights(/' "$log.cpp"
expect c++17 "$log.cpp" <<<"OCTAVO_PLUGIN names cast_weight, which the class does not have"
