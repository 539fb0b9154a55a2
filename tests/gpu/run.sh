#!/usr/bin/env bash
# The first hour on a GPU: every step that needs one, and a page with what was found.
#
# Usage: tests/gpu/run.sh [OPTION...]              builds the preset cuda, then runs all steps: an hour of work,
#                                                  of which several are done at once
#        tests/gpu/run.sh --pack <dir>             builds, and puts into <dir> what a machine needs that has a
#                                                  driver and no packages of a build
#        tests/gpu/run.sh --run <dir> [OPTION...]  runs what was packed
#   options  --plan: what would run here, in how many minutes, and what would not, with the reason
#            --only STEP (may be repeated): these steps alone; the page keeps what earlier calls found
#            --out FOLDER, else $OUT, else out/gpu: logs and report.html, the page
#            --limit SECONDS: the most that one step may take
#            --jobs N: so many steps at once, but for those that measure time
#
# python3, or the interpreter that OCTAVO_PYTHON names, is asked for torch, pytest and Transformer Engine.
# OCTAVO_CUDA_ARCHITECTURES: what is compiled for, 90-real by default. Exit codes: 1, a step failed; 77,
# there is no GPU. Steps that lack something are not done: the page has the reasons. docs/gpu_day.md.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)

build() {
  echo "First the build, about ten minutes. Then: $(python3 -B "$root/tests/gpu/runner.py" --minutes)"
  # shellcheck source=tests/environment/packages.sh
  source "$root/tests/environment/packages.sh"
  install_missing "${OCTAVO_BUILD_PACKAGES[@]}" "${OCTAVO_TEST_PACKAGES[@]}"
  if ! command -v nvcc >/dev/null; then
    echo "error: expected nvcc of CUDA Toolkit 13.0 on PATH, found none" >&2
    exit 1
  fi
  cd -- "$root"
  use_ccache "$root"
  local torch options=(-DOCTAVO_BUILD_TESTS=ON -DOCTAVO_BUILD_SAMPLES=ON -DOCTAVO_CUDA_ARCHITECTURES="${OCTAVO_CUDA_ARCHITECTURES:-90-real}")
  local targets=(octavo_gpu_test octavo_cli octavo_plugin_kernels-cuda octavo_plugin_te octavo_plugin_msamp
                 octavo_plugin_reference octavo_probe)
  if torch=$("${OCTAVO_PYTHON:-python3}" -c 'import os, torch; print(os.path.dirname(torch.__file__))' 2>/dev/null); then
    options+=(-DOCTAVO_BUILD_TORCH_OPS=ON -DOCTAVO_TORCH_ROOT="$torch")
    targets+=(octavo_torch_ops)
  else
    echo "The op library is left out: ${OCTAVO_PYTHON:-python3} has no torch"
  fi
  cmake --preset cuda "${OCTAVO_COMPILER_LAUNCHER[@]}" "${options[@]}"
  cmake --build --preset cuda --parallel "$(nproc)" --target "${targets[@]}"
}

# pack <dir>: the part of the tree that the steps read, in the folders of a clone.
pack() {
  mkdir -p -- "$1"
  local target
  target=$(cd -- "$1" && pwd)
  cd -- "$root"
  (git describe --always --dirty 2>/dev/null || echo unknown) >"$target/VERSION_OF_PACK"
  cp --parents -r tests/gpu tests/bench/python/octavo_kernels.py tests/host_adapters/python tests/abi/layout_v1.inc \
    host_adapters/python/octavo samples/python docs/patterns.md \
    build/cuda/tests/octavo_gpu_test build/cuda/bin/octavo build/cuda/bin/octavo-probe "$target"
  mkdir -p "$target/build/cuda/lib/octavo"
  cp -P build/cuda/lib/*.so* "$target/build/cuda/lib"
  cp -r build/cuda/lib/octavo/plugins "$target/build/cuda/lib/octavo"
  # What a bare system may lack: libraries that are not of the C or C++ runtime.
  ldd build/cuda/lib/liboctavo.so build/cuda/bin/octavo | sed -n 's/.* => \(\/\S*\) .*/\1/p' | sort -u |
    { grep -vE '/(ld-linux|lib(c|m|gcc_s|stdc\+\+|octavo))[-.]' || true; } | xargs -r cp -L -t "$target/build/cuda/lib"
  du -sh "$target"
}

case "${1:-}" in
  --pack)
    if [[ $# -ne 2 ]]; then
      echo "error: --pack expects one folder, found: $*" >&2
      exit 2
    fi
    build
    pack "$2"
    ;;
  --run)
    if [[ ! -e ${2:-}/tests/gpu/runner.py ]]; then
      echo "error: --run expects a folder that --pack made, found: ${2:-nothing}" >&2
      exit 2
    fi
    exec python3 -B "$2/tests/gpu/runner.py" --root "$2" "${@:3}"
    ;;
  *)
    [[ " $* " == *" --plan "* ]] || build
    exec python3 -B "$root/tests/gpu/runner.py" "$@"
    ;;
esac
