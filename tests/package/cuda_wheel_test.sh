#!/usr/bin/env bash
# The wheel octavo-cuda that sdk/packaging/release.sh makes: its content, its tag, its plugin, and that the package octavo finds
# it after an installation. Needs nvcc and no GPU.
#
# Usage: tests/package/cuda_wheel_test.sh <folder of the package octavo> <folder of its libraries> [-D<variable>=<value>...]
#   -D  more options of CMake
#
# Exit code 77: what builds wheels is not installed, or nvcc is missing.
set -euo pipefail

[[ $# -ge 2 ]] || { sed -n '5,6s/^# //p' "${BASH_SOURCE[0]}" >&2; exit 2; }
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/environment/packages.sh
source "$root/tests/environment/packages.sh"
# shellcheck source=tests/environment/paths.sh
source "$root/tests/environment/paths.sh"
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
fail() {
  echo "cuda wheel: $1" >&2
  exit 1
}
package=$1 libraries=$2
shift 2

groups=(torch jax wheel)
if ! bash "$root/tests/environment/install.sh" --check "${groups[@]}"; then
  echo "cuda wheel: skipped; run bash tests/environment/install.sh ${groups[*]}" >&2
  exit 77
fi
if ! command -v nvcc >/dev/null; then
  echo "cuda wheel: skipped, nvcc of CUDA Toolkit 13.0 was not found on PATH" >&2
  exit 77
fi
python=$(torch_env_python)
[[ -e $root/.git ]] || export SOURCE_DATE_EPOCH=1700000000
bash "$root/sdk/packaging/release.sh" --worktree --only cuda --out "$work/out" "$@"

"$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --target "$work/site" "$work"/out/*.whl
installed=$work/site/octavo_cuda
version=$(octavo_version "$root")
info=$work/site/octavo_cuda-$version.dist-info
[[ $(cd -- "$installed" && printf '%s ' * | sed 's/__pycache__ //') == "__init__.py kernels-cuda.octavo-plugin.toml kernels-cuda.so " ]] ||
  fail "expected the plugin, its manifest and __init__.py, found $(ls "$installed")"
grep -qx "Requires-Dist: octavo==$version" "$info/METADATA" || fail "expected that it requires octavo $version: $(grep Requires "$info/METADATA")"
[[ -s $info/licenses/LICENSE ]] || fail "expected the licence in $info, found none"
[[ $(basename -- "$work"/out/*.whl) =~ ^octavo_cuda-$version-py3-none-manylinux_2_[0-9]+_x86_64\.whl$ ]] ||
  fail "expected a tag that states the C library, found $(basename -- "$work"/out/*.whl)"
python3 -B "$root/sdk/cli/check_elf.py" "$installed" || fail "the plugin exports more than its entry, see above"
python3 -B "$root/tests/package/sizes.py" "$root/docs/releasing.md" "$work/out" || fail "the page and the wheel differ, see above"
grep -q "sha256 = \"$(sha256sum "$installed/kernels-cuda.so" | cut -d' ' -f1)\"" "$installed/kernels-cuda.octavo-plugin.toml" ||
  fail "the manifest does not state the hash of its library"

for name in "${!OCTAVO_@}"; do
  unset "$name"
done
mkdir -- "$work/home"
export HOME=$work/home XDG_DATA_HOME=$work/home/data PYTHONPATH=$work/site:$package OCTAVO_LIBRARY_DIR=$libraries
# finds <argument of python...>
finds() {
  local seen
  seen=$("$python" -B "$@" 2>&1) || fail "python $* failed: $seen"
  [[ $seen == *"$installed/kernels-cuda.octavo-plugin.toml"* ]] ||
    fail "python $*: expected $installed/kernels-cuda.octavo-plugin.toml, found $seen"
}
finds -m octavo plugin list
finds -c 'import octavo; print(octavo.list_plugins())'
echo "cuda wheel: made, checked and found by octavo"
