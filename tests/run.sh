#!/usr/bin/env bash
# Builds and runs every test, plainly and under the sanitizers, on a bare Debian 12. The libraries
# that tests/oracles compares with are downloaded once, into .cache/oracles; without network those
# tests are skipped.
#
# Usage: tests/run.sh [preset...] [-L|-LE|-R|-E <regex>]...
#   presets   cpu, cpu-asan, cpu-tsan; all three, in this order, when none is named
#   options   passed to ctest
#
# Stops after the first preset with a failing test; the last lines are always ctest's summary.
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
# shellcheck source=samples/packages.sh
source samples/packages.sh

presets=()
selection=()
excluded_labels=
while [[ $# -gt 0 ]]; do
  case $1 in
    cpu | cpu-asan | cpu-tsan) presets+=("$1") ;;
    -L | -LE | -R | -E)
      if [[ $# -lt 2 ]]; then
        echo "error: $1 expects a regular expression" >&2
        exit 2
      fi
      # Several -LE would have to match together, so they are joined into one.
      if [[ $1 == -LE ]]; then
        excluded_labels+="${excluded_labels:+|}$2"
      else
        selection+=("$1" "$2")
      fi
      shift
      ;;
    *)
      echo "error: expected cpu, cpu-asan, cpu-tsan, -L, -LE, -R or -E, found $1" >&2
      exit 2
      ;;
  esac
  shift
done
[[ ${#presets[@]} -gt 0 ]] || presets=(cpu cpu-asan cpu-tsan)

install_missing "${OCTAVO_BUILD_PACKAGES[@]}" "${OCTAVO_TEST_PACKAGES[@]}"

# Before OMP_NUM_THREADS is set, since nproc obeys it.
jobs=$(env -u OMP_NUM_THREADS nproc)
# Threads of other libraries would only fight with those under test.
export OMP_NUM_THREADS=1

# A run that selects other tests needs no download. 77: not possible here, with the reason in print.
if [[ ${presets[*]} =~ (^| )cpu( |$) && ! $excluded_labels =~ torch|oracles ]] &&
  [[ ${#selection[@]} -eq 0 || ${selection[*]} =~ [Oo]racle|torch ]]; then
  bash tests/oracles/install.sh || { code=$? && [[ $code -eq 77 ]]; } || exit "$code"
fi

mapfile -t launcher < <(compiler_launcher)
for preset in "${presets[@]}"; do
  labels=$excluded_labels
  prefix=()
  # Sanitizers make exhaustive and timed tests slow without finding more, and headers, pages,
  # packages and comparisons with other libraries are the same in every preset. One thread cannot
  # race.
  [[ $preset == cpu ]] || labels+="${labels:+|}exhaustive|bench|abi|docs|package|torch|oracles"
  [[ $preset != cpu-tsan ]] || labels+="|vectors|single_thread"
  # ThreadSanitizer cannot map its shadow memory when the kernel randomizes addresses widely.
  if [[ $preset == cpu-tsan ]] && setarch -R true 2>/dev/null; then
    prefix=(setarch -R)
  fi

  echo "== $preset =="
  cmake --preset "$preset" "${launcher[@]}"
  "${prefix[@]}" cmake --build --preset "$preset" --parallel "$jobs"
  "${prefix[@]}" ctest --preset "$preset" "${selection[@]}" ${labels:+-LE "$labels"}
done
