#!/usr/bin/env bash
# Builds and runs the tests on a bare Debian 12.
#
# Usage: tests/run.sh                       the main tests of every component, up to 10 minutes
#        tests/run.sh rest                  everything else, up to 50 minutes
#        tests/run.sh soak [--hours N]      campaigns of tests/soak.py for N (1) hours, after a build
#        tests/run.sh PRESET... [OPTION]... every test of these presets
#   presets   cpu, torch (cpu and the adapters for torch), cpu-asan (clang, AddressSanitizer and
#             UndefinedBehaviorSanitizer, fuzzers), cpu-tsan, cpu-aarch64 (cross-compiled, run by qemu),
#             cuda (nvcc compiles the CUDA kernels for four architectures, some ten minutes)
#   options   -L, -LE, -R, -E <regular expression>, passed to ctest. Without a preset: every test of
#             preset torch that they select, or of cpu where they select none that needs torch
#
# rest runs: the plain tests that the first command left out (packages, models, oracles, benches,
# exhaustive comparisons), then every test of cpu-asan, with each fuzzer for OCTAVO_FUZZ_SECONDS (5),
# then the tests of cpu-tsan and of cpu-aarch64. docs/testing.md lists what runs where, docs/results/clock.md how long.
#
# torch and the libraries that tests compare with are downloaded once, into .cache/torch. Without
# network the tests that need them are skipped, with the reason in print. The last lines are ctest's
# summary. Exit code 77: everything was skipped.
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
# shellcheck source=tests/environment/packages.sh
source tests/environment/packages.sh
# shellcheck source=tests/environment/paths.sh
source tests/environment/paths.sh

run=main
hours=
presets=()
selection=()
chosen=
excluded_labels=
while [[ $# -gt 0 ]]; do
  case $1 in
    rest | soak) run=$1 ;;
    --hours)
      if [[ $# -lt 2 ]]; then
        echo "error: --hours expects a number" >&2
        exit 2
      fi
      hours=$2
      shift
      ;;
    cpu | torch | cuda | cpu-asan | cpu-tsan | cpu-aarch64) presets+=("$1") ;;
    -L | -LE | -R | -E)
      if [[ $# -lt 2 ]]; then
        echo "error: $1 expects a regular expression" >&2
        exit 2
      fi
      # ctest wants all of several -LE to match, so they are joined into one.
      if [[ $1 == -LE ]]; then
        excluded_labels+="${excluded_labels:+|}$2"
      else
        selection+=("$1" "$2")
        [[ $1 == -E ]] || chosen+=" $2"
      fi
      shift
      ;;
    *)
      echo "error: expected rest, soak, cpu, torch, cuda, cpu-asan, cpu-tsan, cpu-aarch64, -L, -LE, -R or -E, found $1" >&2
      exit 2
      ;;
  esac
  shift
done

# selects <regex>: whether the options leave tests whose names or labels match it.
selects() {
  [[ ! $excluded_labels =~ $1 ]] && [[ -z $chosen || $chosen =~ $1 ]]
}

# has_preset <name>
has_preset() {
  [[ " ${presets[*]} " == *" $1 "* ]]
}

if [[ ${#presets[@]} -gt 0 || -n $chosen$excluded_labels || ${#selection[@]} -gt 0 ]]; then
  if [[ $run != main ]]; then
    echo "error: expected $run alone, found presets or options with it" >&2
    exit 2
  fi
  run=all
fi
if [[ -n $hours && $run != soak ]]; then
  echo "error: --hours belongs to soak" >&2
  exit 2
fi
may_be_cpu=no
if [[ ${#presets[@]} -eq 0 ]]; then
  may_be_cpu=yes
  presets=(torch)
  [[ $run != rest ]] || presets+=(cpu-asan cpu-tsan cpu-aarch64)
  [[ $run != soak ]] || presets+=(cpu-asan cpu-aarch64)
  if ! selects '[Tt]orch|[Pp]ython'; then
    presets=(cpu)
    echo "Preset cpu in place of torch: the options select none of its tests"
  fi
fi
case $run in
  main) echo "The main tests of every component. Expect up to 10 minutes on 2 cores, and downloads of 800 MB once." ;;
  soak) echo "Long campaigns for ${hours:=1} hours, after a build of half an hour on 2 cores." ;;
  rest) echo "Every test that tests/run.sh left out, and the sanitizers. Expect up to 50 minutes on 2 cores." ;;
  all) echo "The selected tests of: ${presets[*]}" ;;
esac

needed=("${OCTAVO_BUILD_PACKAGES[@]}" "${OCTAVO_TEST_PACKAGES[@]}")
[[ $run == main ]] || needed+=("${OCTAVO_RELEASE_PACKAGES[@]}" "${OCTAVO_OPENCL_PACKAGES[@]}" debootstrap minisign)
install_missing "${needed[@]}"

# Before OMP_NUM_THREADS is set, since nproc obeys it.
jobs=$(env -u OMP_NUM_THREADS nproc)
# Threads of other libraries would only fight with those under test.
export OMP_NUM_THREADS=1
export OCTAVO_FUZZ_SECONDS=${OCTAVO_FUZZ_SECONDS:-5}

# install_torch_env <group...>: fails only when that is not possible here, with the reason in print.
install_torch_env() {
  local code=0
  bash tests/environment/install.sh "$@" || code=$?
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
if has_preset cpu-aarch64; then
  code=0
  bash tests/environment/aarch64.sh || code=$?
  [[ $code -eq 0 || $code -eq 77 ]] || exit "$code"
  [[ $code -eq 0 ]] || leave_out cpu-aarch64
fi
if has_preset torch && ! install_torch_env torch ecosystem; then
  echo "Preset torch: skipped, the groups torch and ecosystem cannot be installed here, see above"
  if [[ $may_be_cpu == yes ]]; then
    presets[0]=cpu
  else
    leave_out torch
  fi
fi
jax=no
if has_preset torch && selects '[Jj]ax|[Tt]orch|[Pp]ython'; then
  if install_torch_env torch jax; then
    jax=yes
  else
    echo "The tests of the adapter for JAX: skipped, the group jax cannot be installed here, see above"
  fi
fi
# A run that selects other tests needs no download.
if [[ $run != main ]] && { has_preset cpu || has_preset torch; } && selects '[Oo]racle|[Tt]orch'; then
  install_torch_env torch ecosystem oracles wheel release ||
    echo "The tests labelled torch and oracles will be skipped where they lack a package, see above"
  for group in trl deepspeed strangers site conan mutation; do
    install_torch_env torch ecosystem "$group" || echo "The tests that need $group will be skipped, see above"
  done
  if [[ $jax == yes ]]; then
    install_torch_env torch jax equinox || echo "The tests that need equinox will be skipped, see above"
  fi
  if command -v nvcc >/dev/null; then
    install_torch_env torch disassembler || echo "CudaStatic.check will read what ptxas says alone, see above"
  fi
fi

# Files of components whose tests take minutes to build: main has them where one differs, and rest otherwise.
declare -A component_files=(
  [devices]="kernels/cuda host_adapters/ranks host_adapters/torch/core tests/kernels/cuda tests/host_adapters/ranks tests/support"
  [libtorch]="host_adapters/torch tests/host_adapters/torch_cpp"
)
# changed_components: a list for CMake. What a branch did not change since it left its upstream, or since the last tag, was
# tested there.
changed_components() {
  local base component list=()
  if ! base=$(git merge-base HEAD '@{upstream}' 2>/dev/null || git describe --tags --abbrev=0 2>/dev/null || git rev-parse HEAD 2>/dev/null); then
    base=
  fi
  for component in devices libtorch; do
    # shellcheck disable=SC2086
    if [[ -n $base && -z $(git diff --name-only "$base" -- ${component_files[$component]}) &&
      -z $(git ls-files --others --exclude-standard -- ${component_files[$component]}) ]]; then
      [[ $run != main ]] || echo "Tests of $component: in rest, since nothing in ${component_files[$component]} differs from ${base:0:12}" >&2
    else
      list+=("$component")
    fi
  done
  (IFS=';'; echo "${list[*]}")
}

# in_preset <preset>: configures, builds and tests.
in_preset() {
  local preset=$1 labels=$excluded_labels left_out= prefix=() target=() choice=("${selection[@]}")
  # Sanitizers make exhaustive and timed tests slow without finding more, and headers, pages,
  # packages and comparisons with other libraries are the same in every preset. One thread cannot race.
  [[ ! $preset =~ san$ ]] || left_out="exhaustive|bench|abi|docs|package|torch|oracles"
  [[ $preset != cpu-tsan ]] || left_out+="|samples|vectors|fuzz|single_thread"
  labels+="${labels:+${left_out:+|}}$left_out"
  local options=("-DOCTAVO_LABELS_LEFT_OUT=${left_out//|/;}")
  if [[ $preset == torch ]]; then
    options+=("-DOCTAVO_TORCH_ROOT=$(torch_env_root)" "-DOCTAVO_PYTHON=$(torch_env_python)")
    [[ $jax == no ]] || options+=(-DOCTAVO_BUILD_JAX=ON "-DOCTAVO_JAX_INCLUDE=$(jax_env_include)")
  fi
  if [[ $run =~ ^(main|rest)$ && $preset =~ ^(cpu|torch)$ ]]; then
    target=(--target "octavo_$run")
    choice=(-L "^$run\$")
    options+=("-DOCTAVO_IN_MAIN=$(changed_components)")
  fi
  if [[ $preset == cpu-aarch64 ]]; then
    target=(--target octavo_aarch64)
    choice=(-L '^(aarch64|vectors)$' "${selection[@]}")
  fi
  # ThreadSanitizer cannot map its shadow memory when the kernel randomizes addresses widely.
  if [[ $preset == cpu-tsan ]] && setarch -R true 2>/dev/null; then
    prefix=(setarch -R)
  fi

  echo "== $preset =="
  rm -f "build/$preset/Testing/Temporary/LastTestsFailed.log"
  SECONDS=0
  cmake --preset "$preset" "${OCTAVO_COMPILER_LAUNCHER[@]}" "${options[@]}"
  "${prefix[@]}" cmake --build --preset "$preset" --parallel "$jobs" "${target[@]}"
  echo "== $preset: built in $SECONDS s =="
  [[ $run != soak ]] || return 0
  rm -rf "build/$preset/Testing/cases"
  # A third one computes while others wait for their processes and for deadlines.
  [[ $run != rest ]] || choice+=(-j $((jobs + 1)))
  local code=0
  "${prefix[@]}" ctest --preset "$preset" "${choice[@]}" ${labels:+-LE "$labels"} || code=$?
  if compgen -G "build/$preset/Testing/cases/*.xml" >/dev/null; then
    python3 tests/cases.py "build/$preset" || code=1
  fi
  return "$code"
}

use_ccache "$PWD"
# A preset that fails leaves the others their turn, so that one run shows everything. Its failed tests
# are printed once more at the end, where a long log is read first. rest repeats what main found.
mkdir -p build
[[ $run == rest ]] || rm -f build/failed_main.txt
failures=build/failed_$run.txt
rm -f "$failures"
failed=()
for preset in "${presets[@]}"; do
  set +e  # `||` would also let the commands inside fail
  (set -e; in_preset "$preset")
  code=$?
  set -e
  if [[ $code -ne 0 ]]; then
    failed+=("$preset (exit code $code)")
    python3 tests/failed.py "build/$preset" >>"$failures" || true
  fi
done
if [[ $run == rest && -s build/failed_main.txt ]]; then
  echo "The last bash tests/run.sh failed, too:"
  cat build/failed_main.txt
fi
if [[ ${#failed[@]} -gt 0 ]]; then
  cat "$failures"
  printf 'error: failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
if [[ $run == soak ]]; then
  exec python3 tests/soak.py --hours "$hours"
fi
