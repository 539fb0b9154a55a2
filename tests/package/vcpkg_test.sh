#!/usr/bin/env bash
# The port of sdk/packaging/vcpkg: vcpkg installs it into a folder of its own, and the project of tests/package/consumer builds
# with it and runs. Ports of the libraries that Octavo needs are empty here, and the system has these libraries: nothing is
# downloaded.
#
# Usage: tests/package/vcpkg_test.sh <scratch folder>
#   VCPKG_ROOT, or vcpkg on PATH: an installation of vcpkg
#
# Exit code 77: vcpkg is not installed.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/environment/packages.sh
source "$root/tests/environment/packages.sh"
fail() {
  echo "vcpkg: $1" >&2
  exit 1
}
[[ $# -eq 1 ]] || fail "expected a scratch folder, found: $*"
work=$1
port=$root/sdk/packaging/vcpkg/octavo
version=$(octavo_version "$root")
grep -qx "  \"version\": \"$version\"," "$port/vcpkg.json" || fail "expected the version $version in $port/vcpkg.json, found another one"
vcpkg=${VCPKG_ROOT:+$VCPKG_ROOT/vcpkg}
vcpkg=${vcpkg:-$(command -v vcpkg || true)}
if [[ ! -x $vcpkg ]]; then
  echo "vcpkg: skipped, expected vcpkg in VCPKG_ROOT or on PATH, found none" >&2
  exit 77
fi
rm -rf -- "$work"
mkdir -p -- "$work/home"
for library in $(python3 -c 'import json, sys; print(*(d for d in json.load(open(sys.argv[1]))["dependencies"] if isinstance(d, str)))' \
  "$port/vcpkg.json"); do
  mkdir -p -- "$work/ports/$library"
  printf '{"name": "%s", "version": "0"}\n' "$library" >"$work/ports/$library/vcpkg.json"
  echo 'set(VCPKG_POLICY_EMPTY_PACKAGE enabled)' >"$work/ports/$library/portfile.cmake"
done
# The compiler cache stays where it is.
if command -v ccache >/dev/null; then
  CCACHE_DIR=$(ccache --get-config cache_dir)
  export CCACHE_DIR CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$work
  export VCPKG_KEEP_ENV_VARS="CCACHE_DIR;CCACHE_BASEDIR;CMAKE_C_COMPILER_LAUNCHER;CMAKE_CXX_COMPILER_LAUNCHER"
fi
export HOME=$work/home XDG_DATA_HOME=$work/home/data VCPKG_FORCE_SYSTEM_BINARIES=1 VCPKG_DISABLE_METRICS=1
install=(install octavo --classic "--overlay-ports=$root/sdk/packaging/vcpkg" "--overlay-ports=$work/ports" --binarysource=clear
         "--x-buildtrees-root=$work/buildtrees" "--x-packages-root=$work/packages" "--x-install-root=$work/installed"
         "--downloads-root=$work/downloads")
[[ -z ${VCPKG_ROOT:-} ]] || install+=("--vcpkg-root=$VCPKG_ROOT")
mkdir -- "$work/downloads"
"$vcpkg" "${install[@]}" >"$work/said" 2>&1 || fail "vcpkg install failed: $(tail -n 60 "$work/said")"
! grep -i 'warning' "$work/said" || fail "vcpkg warned, see above"
triplet=$(basename -- "$(dirname -- "$(dirname -- "$(dirname -- "$work"/installed/*/share/octavo/octavo-config.cmake)")")")
installed=$work/installed/$triplet
"$installed/bin/octavo" plugin list >"$work/list"
grep -qF "$installed/lib/octavo/plugins/te.octavo-plugin.toml (next to liboctavo)" "$work/list" ||
  fail "expected that octavo lists the installed plugins, found: $(<"$work/list")"
for project in tests/package/consumer samples/minimal_plugin; do
  folder=$work/${project##*/}
  cmake -S "$root/$project" -B "$folder" -G Ninja "-DCMAKE_PREFIX_PATH=$installed" >"$work/said" 2>&1 &&
    cmake --build "$folder" >>"$work/said" 2>&1 || fail "$project does not build: $(tail -n 40 "$work/said")"
  grep -q "^octavo_DIR:PATH=$installed/" "$folder/CMakeCache.txt" || fail "$project: expected octavo_DIR below $installed"
done
said=$(OCTAVO_PLUGIN_PATH=$work/minimal_plugin/lib/octavo/plugins "$work/consumer/consumer" 2>&1) || fail "the consumer failed: $said"
[[ $said == *"minimal: forward and backward agree with the exact numbers"* ]] || fail "expected that the plugin computes, found: $said"
echo "vcpkg: octavo $version installed without network, tests/package/consumer built with it and run"
