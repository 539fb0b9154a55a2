#!/usr/bin/env bash
# Builds and runs every test on a bare Debian 12: with torch, and under the sanitizers. torch and what
# tests/oracles compares with are downloaded once, into .cache/torch; without network the tests that
# need them are skipped.
#
# Usage: tests/run.sh [preset...] [-L|-LE|-R|-E <regex>]...
#   presets   cpu, torch (cpu and the adapters for torch), cpu-asan, cpu-tsan, cuda. When none is
#             named: torch, cpu-asan and cpu-tsan; but cpu in place of torch where torch cannot be
#             installed, or where the options leave no test for it: -LE torch, or an -L or -R that
#             names neither torch nor python. cuda only when it is named: nvcc compiles the CUDA
#             kernels for four architectures, some ten minutes
#   options   passed to ctest
#
# Stops after the first preset with a failing test; the last lines are always ctest's summary. Exit
# code 77: every preset was skipped, with the reason in print.
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
# shellcheck source=samples/packages.sh
source samples/packages.sh
# shellcheck source=samples/torch_env/paths.sh
source samples/torch_env/paths.sh

presets=()
selection=()
chosen=
excluded_labels=
while [[ $# -gt 0 ]]; do
  case $1 in
    cpu | torch | cuda | cpu-asan | cpu-tsan) presets+=("$1") ;;
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
        [[ $1 == -E ]] || chosen+=" $2"
      fi
      shift
      ;;
    *)
      echo "error: expected cpu, torch, cuda, cpu-asan, cpu-tsan, -L, -LE, -R or -E, found $1" >&2
      exit 2
      ;;
  esac
  shift
done

# selects <regex>: whether the options leave tests whose names or labels match it.
selects() {
  [[ ! $excluded_labels =~ $1 ]] && [[ -z $chosen || $chosen =~ $1 ]]
}

by_default=no
if [[ ${#presets[@]} -eq 0 ]]; then
  by_default=yes
  presets=(torch cpu-asan cpu-tsan)
  if ! selects '[Tt]orch|[Pp]ython'; then
    presets[0]=cpu
    echo "Preset cpu in place of torch: the options select none of its tests"
  fi
fi

# has_preset <name>
has_preset() {
  [[ " ${presets[*]} " == *" $1 "* ]]
}

install_missing "${OCTAVO_BUILD_PACKAGES[@]}" "${OCTAVO_TEST_PACKAGES[@]}"

# Before OMP_NUM_THREADS is set, since nproc obeys it.
jobs=$(env -u OMP_NUM_THREADS nproc)
# Threads of other libraries would only fight with those under test.
export OMP_NUM_THREADS=1

# install_torch_env <group...>: fails only when that is not possible here, with the reason in print.
install_torch_env() {
  local code=0
  bash samples/torch_env/install.sh "$@" || code=$?
  [[ $code -eq 0 || $code -eq 77 ]] || exit "$code"
  [[ $code -eq 0 ]]
}

# leave_out <preset>: ends with code 77 when nothing else is left.
leave_out() {
  local preset kept=()
  for preset in "${presets[@]}"; do
    [[ $preset == "$1" ]] || kept+=("$preset")
  done
  presets=("${kept[@]}")
  [[ ${#presets[@]} -gt 0 ]] || exit 77
}

if has_preset cuda && ! command -v nvcc >/dev/null; then
  echo "Preset cuda: skipped, nvcc of CUDA Toolkit 13.0 was not found on PATH"
  leave_out cuda
fi
if has_preset torch && ! install_torch_env torch ecosystem; then
  echo "Preset torch: skipped, the groups torch and ecosystem cannot be installed here, see above"
  if [[ $by_default == yes ]]; then
    presets[0]=cpu
  else
    leave_out torch
  fi
fi
# A run that selects other tests needs no download.
if { has_preset cpu || has_preset torch; } && selects '[Oo]racle|[Tt]orch'; then
  install_torch_env torch ecosystem oracles ||
    echo "The tests labelled torch and oracles will be skipped where they lack a package, see above"
fi

use_ccache "$PWD"
for preset in "${presets[@]}"; do
  labels=$excluded_labels
  prefix=()
  # Sanitizers make exhaustive and timed tests slow without finding more, and headers, pages,
  # packages and comparisons with other libraries are the same in every preset. Fuzzers bring their
  # own sanitizers. One thread cannot race.
  left_out=
  [[ $preset != cpu-* ]] ||
    left_out="exhaustive|bench|abi|docs|package|torch|oracles|fuzz"
  [[ $preset != cpu-tsan ]] || left_out+="|vectors|single_thread"
  labels+="${labels:+${left_out:+|}}$left_out"
  options=("-DOCTAVO_LABELS_LEFT_OUT=${left_out//|/;}")
  if [[ $preset == torch ]]; then
    root=$(torch_env_root)
    options+=("-DOCTAVO_TORCH_ROOT=$root" "-DOCTAVO_PYTHON=$(torch_env_python)")
  fi
  # ThreadSanitizer cannot map its shadow memory when the kernel randomizes addresses widely.
  if [[ $preset == cpu-tsan ]] && setarch -R true 2>/dev/null; then
    prefix=(setarch -R)
  fi

  echo "== $preset =="
  cmake --preset "$preset" "${OCTAVO_COMPILER_LAUNCHER[@]}" "${options[@]}"
  "${prefix[@]}" cmake --build --preset "$preset" --parallel "$jobs"
  "${prefix[@]}" ctest --preset "$preset" "${selection[@]}" ${labels:+-LE "$labels"}
done
