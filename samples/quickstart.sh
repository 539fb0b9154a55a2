#!/usr/bin/env bash
# From a fresh clone on Debian 12 to a trained FP8 model: installs what is missing, builds, trains
# a small GPT on the CPU, and prints the path of the report.
#
# Usage: samples/quickstart.sh [--host plain|torch|pytorch|jax] [options of the program]
#   plain     samples/train_gpt, a program without an ML library, once per method (the default)
#   torch     samples/torch_gpt, the same model on LibTorch; downloads torch, 570 MB, once
#   pytorch   samples/python/pytorch.py, three changed lines of a PyTorch script, then
#             samples/python/compare.py, the same model in fp32, bf16 and FP8; the same download
#   jax       samples/python/jax_gpt.py, three lines of a JAX script; downloads JAX, too, 150 MB
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
# shellcheck source=tests/environment/packages.sh
source tests/environment/packages.sh
# shellcheck source=tests/environment/paths.sh
source tests/environment/paths.sh

host=plain
if [[ ${1:-} == --host ]]; then
  host=${2:-}
  if [[ ! $host =~ ^(plain|torch|pytorch|jax)$ ]]; then
    echo "error: --host: expected plain, torch, pytorch or jax, found ${host:-nothing}" >&2
    exit 2
  fi
  shift 2
fi

packages=("${OCTAVO_BUILD_PACKAGES[@]}")
[[ $host == plain ]] || packages+=(python3 python3-venv binutils)
install_missing "${packages[@]}"

options=()
if [[ $host != plain ]]; then
  groups=(torch)
  [[ $host != jax ]] || groups+=(jax)
  bash tests/environment/install.sh "${groups[@]}"
  case $host in
    jax) options+=(-DOCTAVO_BUILD_JAX=ON -DOCTAVO_JAX_INCLUDE="$(jax_env_include)") ;;
    torch) options+=(-DOCTAVO_BUILD_TORCH=ON) ;;&
    *) options+=(-DOCTAVO_BUILD_TORCH_OPS=ON -DOCTAVO_TORCH_ROOT="$(torch_env_root)") ;;
  esac
fi

use_ccache "$PWD"
build=build/quickstart
[[ $host == plain ]] || build+=-$host
cmake --preset cpu -B "$build" -DOCTAVO_BUILD_TESTS=OFF "${options[@]}" "${OCTAVO_COMPILER_LAUNCHER[@]}"
cmake --build "$build" --parallel "$(nproc)"

out=out/quickstart
mkdir -p "$out"
case $host in
  plain) "$build/bin/train_gpt" --out "$out" "$@" ;;
  torch) "$build/bin/torch_gpt" --out "$out" "$@" ;;
  pytorch | jax)
    script=samples/python/pytorch.py
    [[ $host != jax ]] || script=samples/python/jax_gpt.py
    export OCTAVO_LIBRARY_DIR="$PWD/$build/lib" PYTHONPATH="$PWD/host_adapters/python"
    "$(torch_env_python)" "$script" "$@"
    echo "The script and its plain version: $script, samples/python/plain/${script##*/}"
    if [[ $host == pytorch ]]; then
      PATH="$PWD/$build/bin:$PATH" "$(torch_env_python)" samples/python/compare.py --folder "$out" "$@"
    fi
    exit
    ;;
esac

if [[ ! -s $out/report.html ]]; then
  echo "error: expected the program to write $out/report.html, found none" >&2
  exit 1
else
  echo "The report: $PWD/$out/report.html"
fi
