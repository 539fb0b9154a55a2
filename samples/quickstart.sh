#!/usr/bin/env bash
# From a fresh clone on Debian 12 to a trained FP8 model: installs what is missing, builds, trains
# a small GPT on the CPU once per method, and says where the report lies.
#
# Usage: samples/quickstart.sh [options of train_gpt]
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
# shellcheck source=samples/packages.sh
source samples/packages.sh

install_missing "${OCTAVO_BUILD_PACKAGES[@]}"

mapfile -t launcher < <(compiler_launcher)
cmake --preset cpu -B build/quickstart -DOCTAVO_BUILD_TESTS=OFF "${launcher[@]}"
cmake --build build/quickstart --parallel "$(nproc)"

out=out/quickstart
mkdir -p "$out"
build/quickstart/bin/train_gpt --out "$out" "$@"

if [[ ! -s $out/report.html ]]; then
  echo "error: expected train_gpt to write $out/report.html, found none" >&2
  exit 1
fi
echo "The report: $PWD/$out/report.html"
