#!/usr/bin/env bash
# The GPU suite: the CUDA kernels on a real device, against the CPU kernels and the contract.
#
# Usage: tests/gpu/run.sh                builds the preset cuda and runs the suite here
#        tests/gpu/run.sh --pack <dir>   builds, and puts into <dir> what a machine needs that has a
#                                        driver and no packages of a build
#        tests/gpu/run.sh --run <dir>    runs what was packed
#
# Where python3 has torch, the goals G1 to G13 are measured against it, too (bench/bench.py); the figures
# go to bench.json in the folder OUT, or in the current one.
#
# OCTAVO_CUDA_ARCHITECTURES: what is compiled for, 90-real by default. cuBLASLt is that of the CUDA
# toolkit, or of a torch wheel that python3 finds. With compute-sanitizer on PATH the kernels run under
# it a second time. Exit code 77: there is no GPU, with the reason in print.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)

usage() {
  echo "error: expected nothing, --pack <dir> or --run <dir>, found: $*" >&2
  exit 2
}

build() {
  # shellcheck source=samples/packages.sh
  source "$root/samples/packages.sh"
  install_missing "${OCTAVO_BUILD_PACKAGES[@]}" "${OCTAVO_TEST_PACKAGES[@]}"
  if ! command -v nvcc >/dev/null; then
    echo "error: expected nvcc of CUDA Toolkit 13.0 on PATH, found none" >&2
    exit 1
  fi
  cd -- "$root"
  use_ccache "$root"
  cmake --preset cuda "${OCTAVO_COMPILER_LAUNCHER[@]}" \
    -DOCTAVO_CUDA_ARCHITECTURES="${OCTAVO_CUDA_ARCHITECTURES:-90-real}"
  cmake --build --preset cuda --parallel "$(nproc)" --target octavo_gpu_test octavo_plugin_kernels-cuda
}

# The folder of libcublasLt.so.13; nothing where the loader finds it by itself.
cublas_folder() {
  local folder
  for folder in /usr/local/cuda/lib64 "$(python3 - <<'PY' 2>/dev/null || true
import importlib.util, pathlib
spec = importlib.util.find_spec("nvidia")
for place in list(spec.submodule_search_locations) if spec else []:
    for found in sorted(pathlib.Path(place).glob("*/lib/libcublasLt.so.13")):
        print(found.parent)
        raise SystemExit
PY
  )"; do
    if [[ -n $folder && -e $folder/libcublasLt.so.13 ]]; then
      echo "$folder"
      return
    fi
  done
}

# measure <plugin> <folder of bench.py>
measure() {
  if ! python3 -c 'import torch' 2>/dev/null; then
    echo "G1 to G13: skipped, python3 has no torch"
    return
  fi
  python3 "$2/bench.py" --plugin "$1" --out "${OUT:-.}/bench.json"
}

# run_suite <program>
run_suite() {
  local folder code=0
  folder=$(cublas_folder)
  echo "cuBLASLt: ${folder:-as the loader finds it}"
  export LD_LIBRARY_PATH="${folder:+$folder:}${LD_LIBRARY_PATH:-}"
  "$1" --gtest_brief=1 || code=$?
  [[ $code -eq 0 ]] || exit "$code"
  if command -v compute-sanitizer >/dev/null; then
    # Products of cuBLASLt are not ours to judge, and take long under it.
    compute-sanitizer --error-exitcode 1 "$1" --gtest_brief=1 --gtest_filter='-*close_to_the_cpu*:*Graph*'
  else
    echo "compute-sanitizer: skipped, it is not on PATH"
  fi
}

case "$#/${1:-}" in
  0/)
    build
    run_suite "$root/build/cuda/tests/octavo_gpu_test"
    measure "$root/build/cuda/lib/octavo/plugins/kernels-cuda.so" "$root/tests/gpu/bench"
    ;;
  2/--pack)
    mkdir -p -- "$2"
    target=$(cd -- "$2" && pwd)
    build
    cp build/cuda/tests/octavo_gpu_test build/cuda/lib/octavo/plugins/kernels-cuda.* "$target"
    mkdir -p "$target/bench"
    cp tests/gpu/bench/*.py tests/bench/python/octavo_kernels.py "$target/bench"
    du -sh "$target"
    ;;
  2/--run)
    packed=$(cd -- "$2" && pwd)
    run_suite "$packed/octavo_gpu_test"
    measure "$packed/kernels-cuda.so" "$packed/bench"
    ;;
  *) usage "$@" ;;
esac
