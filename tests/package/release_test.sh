#!/usr/bin/env bash
# The Debian packages and the tarball of sdk/packaging/release.sh as a user meets them: checksums, signature, SBOM, an
# installation, a project of CMake, a removal that leaves nothing. tests/package/wheel_test.sh has the wheel.
#
# Usage: tests/package/release_test.sh [--root | --twice] [-D<variable>=<value>...]
#   --root   installs the Debian packages in a Debian of their own; without it they are unpacked
#   --twice  makes everything two times, with a compiler cache of its own each, and compares; half an hour
#   -D       more options of CMake. With those of another build of this tree, ccache has every object
#
# Exit code 77: a tool cannot be installed here, with the reason in print.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/environment/paths.sh
source "$root/tests/environment/paths.sh"
mode=
if [[ ${1:-} == --root || ${1:-} == --twice ]]; then
  mode=$1
  shift
fi
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
fail() {
  echo "release: $1" >&2
  exit 1
}

bash "$root/tests/environment/install.sh" torch release
python=$(torch_env_python)
# A tree without git states no time.
[[ -e $root/.git ]] || export SOURCE_DATE_EPOCH=1700000000
# release <folder> <argument...>
release() {
  local code=0
  bash "$root/sdk/packaging/release.sh" --worktree --out "$@" || code=$?
  [[ $code -eq 0 ]] || exit "$code"
}

if [[ $mode == --twice ]]; then
  for copy in first second; do
    CCACHE_DIR=$work/cache-$copy release "$work/$copy" "$@"
  done
  diff "$work/first/SHA256SUMS" "$work/second/SHA256SUMS" || fail "two releases of one commit differ, see above"
  echo "release: two builds are equal in $(wc -l <"$work/first/SHA256SUMS") files"
  exit 0
fi

# Bad input is refused, and nothing is made.
seen=$(bash "$root/sdk/packaging/release.sh" --only rpm 2>&1) && fail "--only rpm was accepted"
[[ $seen == *"expects deb, tarball, sdist, wheel or cuda, found 'rpm'"* ]] || fail "expected that --only names its values, found: $seen"
seen=$(bash "$root/sdk/packaging/release.sh" --out "$root/sdk" 2>&1) && fail "a folder with files was accepted"
[[ $seen == *"expected a new or empty folder, found files in"* ]] || fail "expected that --out is refused, found: $seen"

command -v minisign >/dev/null || { echo "release: expected minisign (apt-get install minisign), found none" >&2; exit 77; }
minisign -G -W -p "$work/key.pub" -s "$work/key" >/dev/null
out=$work/out
release "$out" --only deb,tarball --key "$work/key" "$@"
(cd -- "$out" && sha256sum --quiet -c SHA256SUMS) || fail "SHA256SUMS is wrong, see above"
[[ $(wc -l <"$out/SHA256SUMS") -eq $(find "$out" -name '*.deb' -o -name '*.xz' -o -name '*.json' | wc -l) ]] ||
  fail "expected one line of SHA256SUMS for each file, found $(cat "$out/SHA256SUMS")"
minisign -Vq -p "$work/key.pub" -m "$out/SHA256SUMS" || fail "the signature of SHA256SUMS does not hold"
"$python" -B "$root/tests/package/sbom_check.py" "$out" || fail "the SBOM is wrong, see above"
python3 -B "$root/tests/package/sizes.py" "$root/docs/releasing.md" "$out" || fail "the page and the packages differ, see above"
code=0
bash "$root/tests/package/deb_test.sh" "$out" ${mode:+"$mode"} || code=$?
[[ $code -eq 0 ]] || exit "$code"

# The tarball, in a folder whose name has a space. Nothing of this tree or of this user may decide what follows.
for name in "${!OCTAVO_@}" LD_LIBRARY_PATH CMAKE_PREFIX_PATH; do
  unset "$name"
done
export HOME=$work/home XDG_DATA_HOME=$work/home/data
mkdir -p -- "$work/un packed" "$HOME"
tar -C "$work/un packed" -xf "$out"/octavo-*-linux-x86_64.tar.xz
unpacked=("$work/un packed"/octavo-*)
install=("${unpacked[0]}/install.sh" --prefix "$work/prefix")
# works <folder>: the program, its plugins and a project of CMake, below this folder alone.
works() {
  local said
  cd -- "$work"
  said=$("$1/bin/octavo" plugin list) || fail "octavo plugin list failed: $said"
  [[ $said == *"  $1/lib/octavo/plugins/te.octavo-plugin.toml"* ]] || fail "expected te below $1, found: $said"
  said=$(cmake -S "$root/tests/package/consumer" -B "$work/consumer" -G Ninja --fresh "-DCMAKE_PREFIX_PATH=$1" 2>&1 &&
    cmake --build "$work/consumer" 2>&1) || fail "a project of CMake does not build with $1: $said"
  # It names a backend that is not there, and liboctavo says so.
  said=$("$work/consumer/consumer" 2>&1) && fail "the consumer ran without its plugin"
  [[ $said == *minimal* ]] || fail "expected that liboctavo misses the backend minimal, found: $said"
  said=$(ldd "$1/bin/octavo" "$1/libexec/octavo/octavo-probe" | grep -E 'sodium|yaml|octavo\.so' | grep -v " => $1/bin/../" || true)
  [[ $said != *"=> /usr"* && $said != *"=> /lib"* && $said != *"not found"* ]] || fail "expected libraries below $1, found: $said"
}
works "${unpacked[0]}"
libc=$(PYTHONPATH=$root/sdk/packaging "$python" -B -c \
  'import sys, wheel_backend; print(wheel_backend.floor(sys.argv[1]))' "${unpacked[0]}")
grep -q "^| \[tarball\].* glibc $libc," "$root/docs/install.md" ||
  fail "the tarball needs glibc $libc, and docs/install.md states another one"
"${install[@]}" --dry-run >/dev/null || fail "install.sh --dry-run failed"
[[ ! -e $work/prefix ]] || fail "install.sh --dry-run wrote to $work/prefix"
mkdir -p -- "$work/prefix/bin"
touch "$work/prefix/bin/octavo" "$work/prefix/mine"
seen=$("${install[@]}" 2>&1) && fail "install.sh replaced a file that it did not install"
[[ $seen == *"found $work/prefix/bin/octavo"* ]] || fail "expected that install.sh names the file, found: $seen"
rm -- "$work/prefix/bin/octavo"
"${install[@]}" >/dev/null || fail "install.sh failed"
"${install[@]}" >/dev/null || fail "install.sh failed where it had installed before"
mv -- "${unpacked[0]}" "$work/elsewhere"
works "$work/prefix"
(cd -- "$work" && "$work/prefix/bin/octavo" plugin try te >/dev/null) || fail "octavo plugin try te failed"
"$work/elsewhere/install.sh" --prefix "$work/prefix" --uninstall >/dev/null || fail "install.sh --uninstall failed"
left=$(find "$work/prefix" -mindepth 1)
[[ $left == "$work/prefix/mine" ]] || fail "expected that only $work/prefix/mine is left, found: $left"
seen=$("$work/elsewhere/install.sh" --prefix "$work/prefix" --uninstall 2>&1) && fail "a second --uninstall was accepted"
[[ $seen == *"found none"* ]] || fail "expected that a second --uninstall is refused, found: $seen"
echo "release: tarball unpacked, moved, installed, used and removed"
