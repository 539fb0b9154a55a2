#!/usr/bin/env bash
# Runs a short selection of the kernels' tests under valgrind's memcheck: reads of memory that was
# never written, which neither guard pages nor AddressSanitizer see. memcheck interprets every instruction.
#
# Usage: tests/kernels/valgrind.sh <folder of the test programs>
#
# OCTAVO_MEMCHECK=all, in tests/soak.py, takes all programs on both levels, in some two minutes; without it the ones of
# casts, products and histories run on avx2.
#
# Exits with 0 when nothing was found, 1 on a fault or a failing test, 77 when valgrind is missing.
# Levels: valgrind knows no AVX-512 and hides it from the programs, so the levels are avx2 and
# baseline; for the others there are AddressSanitizer and the guard pages of guard_*_test.cpp.
set -euo pipefail

if [[ $# -ne 1 || ! -d $1 ]]; then
  echo "usage: $0 <folder of the test programs>; found: ${*:-nothing}" >&2
  exit 1
fi
programs=$1

if ! command -v valgrind >/dev/null; then
  echo "skipped: valgrind is not installed (Debian package valgrind)"
  exit 77
fi
if ! report=$(valgrind --error-exitcode=99 -q true 2>&1); then
  echo "skipped: valgrind does not run here: $report"
  exit 77
fi

echo "valgrind $(valgrind --version): levels avx2 and baseline. It knows no AVX-512, so the levels"
echo "avx512 and avx512_bf16 rest on AddressSanitizer and on the guard pages of guard_*_test."

# <program> <tests>: those that read every kind of memory once, not those that go through all sizes.
selection=(
  kernels_quantize_test '*'
  kernels_quantize_blocks_test '*.every_input*:*.eps*:*.one_output*:*.keep_positive*'
  kernels_dequantize_test '*'
  kernels_gemm_layout_test '*'
  kernels_gemm_test 'Gemm.special*:Gemm.products*:Gemm.plain*'
  kernels_adam_states_test '*'
  kernels_sums_test '*'
  kernels_delayed_test '*'
  kernels_prologue_test '*'
)

found=0
for level in avx2 baseline; do
  for ((i = 0; i < ${#selection[@]}; i += 2)); do
    # The baseline has the same loops in shorter vectors.
    [[ $level != baseline || ${selection[i]} =~ (quantize|gemm)_test ]] || continue
    [[ ${OCTAVO_MEMCHECK:-} == all || $level${selection[i]} =~ ^avx2kernels_(quantize|gemm|delayed|dequantize)_test$ ]] || continue
    program=$programs/${selection[i]}
    start=$SECONDS
    status=0
    # Programs that a selection of targets left out would otherwise count as passed.
    [[ -x $program ]] || { echo "FAILED: expected the program $program, found none" && exit 1; }
    output=$(OCTAVO_FORCE_KERNELS=$level valgrind --quiet --error-exitcode=99 --leak-check=no \
      "$program" --gtest_brief=1 --gtest_filter="${selection[i + 1]}" 2>&1) || status=$?
    echo "$level ${selection[i]}: exit $status, $((SECONDS - start)) s"
    if [[ $status -ne 0 ]]; then
      echo "$output"
      found=1
    fi
  done
done
exit "$found"
