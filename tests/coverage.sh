#!/usr/bin/env bash
# Branch coverage of what stands between a stranger's file and this process: configuration,
# discovery, trust, the ELF check, negotiation, the loader with its probe.
#
# Usage: tests/coverage.sh [--report]
#   --report   also writes build/coverage/report/index.html, the sources with what was not taken
#
# Builds liboctavo with gcc's --coverage in build/coverage, runs the tests that reach it, prints each
# group, and fails when one is below 100 % of branches. What the compiler adds for exceptions
# is left out by gcovr's own options (tests/coverage_gcov.py completes the marks that they go by), and
# lines marked GCOVR_EXCL in the sources are printed with their reasons.
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
# shellcheck source=tests/environment/packages.sh
source tests/environment/packages.sh

report=no
case "$#/${1:-}" in
  0/) ;;
  1/--report) report=yes ;;
  *)
    echo "error: expected nothing or --report, found: $*" >&2
    exit 2
    ;;
esac

# <group> <sources in sdk/src, as a regular expression>
groups=(
  config 'config/(config|toml|options).*'
  discovery 'plugin/(discovery|manifest.*)'
  trust 'trust/.*|file/privilege.*|negotiate/lock_make'
  elf 'plugin/elf.*'
  negotiate 'negotiate/negotiate.*|config/requirements|base/verdict'
  loader 'plugin/(loader|complete)|base/(fork|handles)|probe/.*|file/probe_places'
)
tests=(
  octavo_sdk_internal_test octavo_sdk_test octavo_sdk_handles_test octavo_sdk_fork_test
  octavo_sdk_fork_lock_test octavo_sdk_threads_test
  octavo_zoo_test octavo_path_policy_test octavo_cli_test
  octavo_hostile_files_test train_gpt_device_test octavo_sdk_ranks_test
)
# What tests/misconfigurations/run.py runs.
programs=(octavo_cli octavo_fake_cuda octavo_fake_nvidia-ml octavo_report_of_run)
programs+=(kernels_cuda_plugin_test)

install_missing "${OCTAVO_BUILD_PACKAGES[@]}" "${OCTAVO_TEST_PACKAGES[@]}" gcovr

# Before OMP_NUM_THREADS is set, since nproc obeys it.
jobs=$(env -u OMP_NUM_THREADS nproc)
export OMP_NUM_THREADS=1
build=build/coverage
use_ccache "$PWD"
cmake --preset cpu -B "$build" "${OCTAVO_COMPILER_LAUNCHER[@]}" -DOCTAVO_COVERAGE=ON
cmake --build "$build" --parallel "$jobs" --target "${tests[@]}" "${programs[@]}"
# Counts of an earlier run would hide what this one does not reach, and notes of a source that is gone have none.
find "$build" -name '*.gcda' -delete
find "$build" -name '*.gcno' -exec sh -c '[ -e "${1%.gcno}.o" ] || rm -- "$1"' sh {} \;
# run <program>: but for what measures times, which mean nothing here, and a limit of file sizes, which gcov's files exceed.
run() {
  "$build/tests/$1" --gtest_brief=1 --gtest_filter='-ProbeSpeed.*:*file_that_may_not_grow*:*no_file_may_grow*'
}
for test in "${tests[@]}"; do
  echo "== $test =="
  # Cases that need a process of their own, a shard each: APART in tests/zoo/CMakeLists.txt, and where -fno-threadsafe-statics
  # lets two threads make one object twice.
  if [[ $test =~ ^octavo_(zoo|sdk_fork_lock)_test$ ]]; then
    GTEST_TOTAL_SHARDS=$("$build/tests/$test" --gtest_list_tests | grep -c '^  ')
    export GTEST_TOTAL_SHARDS
    for ((shard = 0; shard < GTEST_TOTAL_SHARDS; ++shard)); do
      GTEST_SHARD_INDEX=$shard run "$test" | sed '/^Running main()\|^\[==========\]\|^\[  PASSED  \]/d'
    done
    unset GTEST_TOTAL_SHARDS
  else
    run "$test"
  fi
done
# A fake GPU, for this program only: the others expect a machine without one.
echo "== kernels_cuda_plugin_test =="
LD_LIBRARY_PATH="$PWD/$build/tests/fake_gpu:$PWD/$build/tests/fake_blas" \
  "$build/tests/kernels_cuda_plugin_test" --gtest_brief=1
echo "== misconfigurations =="
python3 -B tests/misconfigurations/run.py "$PWD/$build/bin/octavo" --zoo "$PWD/$build/tests/zoo" \
  --fake-gpu "$PWD/$build/tests/fake_gpu" --report "$PWD/$build/bin/octavo_report_of_run" \
  --schema docs/check.schema.json | tail -n 1

all=("${groups[@]}")
patterns=
for ((i = 1; i < ${#all[@]}; i += 2)); do patterns+="${patterns:+|}${all[i]}"; done
root=$PWD
# From the build folder, which the names of sources in gcc's notes are relative to. catch: whether the
# exception has the handler's type, else it goes on, is the compiler's branch.
(cd "$build" && gcovr --root "$root" --gcov-executable "python3 $root/tests/coverage_gcov.py" \
  --exclude-throw-branches --exclude-unreachable-branches \
  --exclude-branches-by-pattern '^[ }]*catch \(.*' --object-directory . \
  --filter "$root/sdk/src/($patterns)\.(cpp|h)$" --json coverage.json sdk)

failed=no
for ((i = 0; i < ${#all[@]}; i += 2)); do
  echo
  echo "== ${all[i]} =="
  table=$(gcovr --root "$root" --add-tracefile "$build/coverage.json" \
    --filter "$root/sdk/src/(${all[i + 1]})\.(cpp|h)$" --branches)
  echo "$table"
  # A group without branches would be one whose sources were not found.
  grep -Eq '^TOTAL .* 100%' <<<"$table" || failed=yes
done
if [[ $report == yes ]]; then
  mkdir -p "$build/report"
  gcovr --root . --add-tracefile "$build/coverage.json" --html-details "$build/report/index.html"
fi

echo
echo "== lines that no test in one process can reach, each with its reason =="
grep -rn GCOVR_EXCL sdk/src || echo "none"
if [[ $failed == yes ]]; then
  echo "error: expected 100 % of branches in every group, found less; see above" >&2
  exit 1
fi
