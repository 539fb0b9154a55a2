#!/usr/bin/env bash
# The wheel for linux-aarch64 with torch's own wheel for it, in Debian's Python for arm64, which qemu-aarch64 runs: it trains
# with every recipe, and the weights are those of this processor, bit for bit.
#
# Usage: tests/package/aarch64_torch_test.sh <folder of the package octavo> <folder of its libraries>
#
# Both folders are those of a build for this processor. Downloads 430 MB: torch, numpy and the CUDA runtime for aarch64.
# Exit code 77: a tool or a package cannot be had here, with the reason in print.
set -euo pipefail

[[ $# -eq 2 ]] || { sed -n '5,6s/^# //p' "${BASH_SOURCE[0]}" >&2; exit 2; }
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/environment/paths.sh
source "$root/tests/environment/paths.sh"
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
fail() {
  echo "aarch64: $1" >&2
  exit 1
}

bash "$root/tests/environment/install.sh" torch jax wheel
bash "$root/tests/environment/aarch64.sh" --python
python=$(torch_env_python)
[[ -e $root/.git ]] || export SOURCE_DATE_EPOCH=1700000000
bash "$root/sdk/packaging/release.sh" --arch aarch64 --worktree --only wheel --out "$work/out"

# torch of the same version as here; what is Python alone comes from here.
mapfile -t wanted < <(grep -E '^(torch|numpy|nvidia-cuda-runtime)==' "$root/tests/environment/torch.txt")
[[ ${#wanted[@]} -eq 3 ]] || fail "expected torch, numpy and nvidia-cuda-runtime in torch.txt, found ${wanted[*]}"
if ! "$python" -m pip download --quiet --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: --python-version 3.11 \
  --platform manylinux2014_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux_2_28_aarch64 -d "$work/wheels" "${wanted[@]}"; then
  echo "aarch64: skipped, pip cannot download ${wanted[*]} for aarch64, see above" >&2
  exit 77
fi
site=$work/site
for wheel in "$work"/wheels/*.whl "$work"/out/*.whl; do
  python3 -m zipfile -e "$wheel" "$site"
  rm -- "$wheel"
done
here=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
for name in filelock fsspec jinja2 markupsafe mpmath networkx sympy typing_extensions.py; do
  cp -r -- "$here/$name" "$site"
done
find "$site/markupsafe" -name '*.so' -delete
# The compiler of the stand-ins is called cc.
mkdir -- "$work/bin"
ln -s -- "$(command -v aarch64-linux-gnu-gcc)" "$work/bin/cc"
PATH=$work/bin:$PATH python3 -B "$root/tests/environment/cuda_stand_ins.py" "$site"

system=/usr/aarch64-linux-gnu/lib
debian=$root/.cache/aarch64-python
libraries=$system:$debian/usr/lib/aarch64-linux-gnu:$debian/lib/aarch64-linux-gnu:$site/nvidia/cu13/lib
start=(qemu-aarch64 "$system/ld-linux-aarch64.so.1" --library-path "$libraries")
# liboctavo starts octavo-probe, and the kernel starts no program of another processor: a script does.
probe=$site/octavo/lib/octavo/octavo-probe
mv -- "$probe" "$probe.aarch64"
# shellcheck disable=SC2016
printf '#!/bin/sh\nexec %s "$0.aarch64" "$@"\n' "${start[*]}" >"$probe"
chmod 755 "$probe" "$probe.aarch64"

for name in "${!OCTAVO_@}" PYTHONPATH LD_LIBRARY_PATH; do
  unset "$name"
done
export HOME=$work/home XDG_DATA_HOME=$work/home/data OMP_NUM_THREADS=1
mkdir -- "$HOME"
train=$root/tests/package/aarch64_train.py
PYTHONPATH=$1 OCTAVO_LIBRARY_DIR=$2 "$python" -B "$train" >"$work/here.txt"
PYTHONPATH=$site "${start[@]}" "$debian/usr/bin/python3.11" -B "$train" >"$work/there.txt"
diff "$work/here.txt" "$work/there.txt" || fail "weights differ between this processor and aarch64, see above"
[[ $(cut -d' ' -f3 "$work/here.txt" | sort -u | wc -l) -eq $(wc -l <"$work/here.txt") ]] ||
  fail "expected other weights from each recipe, found $(cat "$work/here.txt")"
echo "aarch64: the weights of $(wc -l <"$work/here.txt") recipes in PyTorch are equal, bit for bit"
