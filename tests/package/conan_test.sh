#!/usr/bin/env bash
# The recipe of sdk/packaging/conan without network, with a Conan home of its own: a package is made, and the project of
# tests/package/consumer builds with it and runs.
#
# Usage: tests/package/conan_test.sh <scratch folder> <build type> [<variable>=<value>...]
#   variables of CMake: with those of another build of this tree, ccache has every object
#
# Exit code 77: Conan is not installed, with the reason in print.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/environment/packages.sh
source "$root/tests/environment/packages.sh"
# shellcheck source=tests/environment/paths.sh
source "$root/tests/environment/paths.sh"
fail() {
  echo "conan: $1" >&2
  exit 1
}

[[ $# -ge 2 ]] || fail "expected a scratch folder and a build type, found: $*"
work=$1 type=$2
shift 2
if ! bash "$root/tests/environment/install.sh" --check conan; then
  echo "conan: skipped, Conan is not installed; run bash tests/environment/install.sh conan" >&2
  exit 77
fi
rm -rf -- "$work"
mkdir -p -- "$work/home"
for name in "${!OCTAVO_@}" "${!CONAN_@}"; do
  [[ $name == OCTAVO_TORCH_ENV ]] || unset "$name"
done
python=$(torch_env_python)
PYTHONPATH=$(torch_env_folder)/apart/conan
# The compiler cache stays where it is, with paths below the home of Conan as if that were the tree.
if command -v ccache >/dev/null; then
  CCACHE_DIR=$(ccache --get-config cache_dir)
  export CCACHE_DIR CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$work/conan
fi
use_ccache "$work/conan"
export PYTHONPATH HOME=$work/home XDG_DATA_HOME=$work/home/data CONAN_HOME=$work/conan

# conan <argument...>: what it says goes to a file, which is shown where it fails.
conan() {
  "$python" -B -m conans.conan "$@" >"$work/said" 2>&1
}
# refused <part of the reason> <argument...>
refused() {
  local reason=$1
  shift
  ! conan "$@" || fail "conan $* was accepted"
  grep -qF "$reason" "$work/said" || fail "expected that conan $* says '$reason', found: $(<"$work/said")"
}
conan profile detect || fail "no profile: $(<"$work/said")"
recipe=$root/sdk/packaging/conan
mkdir -- "$work/elsewhere"
cp -- "$recipe/conanfile.py" "$work/elsewhere"
refused "expected the recipe in sdk/packaging/conan of a checkout of Octavo, found no" export "$work/elsewhere"
refused "Octavo runs on Linux, on armv8 or x86_64; found Linux, riscv64" create "$recipe" -nr -s arch=riscv64

variables=$("$python" -c 'import json, sys; print(json.dumps(dict(one.split("=", 1) for one in sys.argv[1:])))' "$@")
conan create "$recipe" -nr -s "build_type=$type" -c tools.cmake.cmaketoolchain:generator=Ninja \
  -c "tools.cmake.cmake_layout:test_folder=$work/test" -c "tools.cmake.cmaketoolchain:extra_variables=$variables" ||
  fail "conan create failed: $(tail -n 40 "$work/said")"
version=$(octavo_version "$root")
for said in "octavo/$version: Package '" "System requirements: libboost-dev " "te.octavo-plugin.toml (next to liboctavo)" \
  "minimal: forward and backward agree with the exact numbers"; do
  grep -qF "$said" "$work/said" || fail "expected that conan create says '$said', found: $(tail -n 60 "$work/said")"
done
# The targets are those of Octavo's own files: none of Conan's may stand in for them.
made=$(find "$work/test" -name 'octavo*onfig*.cmake')
[[ -z $made ]] || fail "expected that Conan writes no files for find_package(octavo), found $made"
grep -q "^octavo_DIR:PATH=$work/conan/" "$work"/test/*/consumer/CMakeCache.txt ||
  fail "expected octavo_DIR below $work/conan, found $(grep -rh octavo_DIR "$work/test" --include=CMakeCache.txt)"
echo "conan: octavo/$version made without network, tests/package/consumer built with it and run"
