#!/usr/bin/env bash
# The Debian packages, the tarball and the wheel that sdk/packaging/release.sh makes for linux-aarch64 on x86-64: checksums,
# SBOM, every program and library, dependencies, manifests, and the program octavo of tarball and wheel, which qemu-aarch64
# runs. tests/package/aarch64_torch_test.sh trains with the wheel.
#
# Usage: tests/package/aarch64_test.sh [-D<variable>=<value>...]
#   -D  more options of CMake. With those of preset cpu-aarch64, ccache has every object of its build
#
# Exit code 77: a tool cannot be installed here, with the reason in print.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/environment/paths.sh
source "$root/tests/environment/paths.sh"
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
fail() {
  echo "aarch64: $1" >&2
  exit 1
}

# refused <part of the reason> <argument...>: release.sh says why, and makes nothing.
refused() {
  local reason=$1 seen
  shift
  seen=$(bash "$root/sdk/packaging/release.sh" --out "$work/refused" "$@" 2>&1) && fail "release.sh accepted $*"
  [[ $seen == *"$reason"* ]] || fail "expected that release.sh $* says '$reason', found: $seen"
  [[ ! -e $work/refused ]] || fail "release.sh $* made $work/refused"
}
refused "--arch expects x86_64 or aarch64, found 'arm'" --arch arm
refused "--only expects deb tarball wheel for aarch64, found 'sdist'" --arch aarch64 --only sdist

# Preset cpu-aarch64 needs no torch, so this test downloads none.
groups=(torch jax wheel release)
if ! bash "$root/tests/environment/install.sh" --check "${groups[@]}"; then
  echo "aarch64: skipped, headers of torch and jaxlib, or what checks an SBOM, are missing; run bash tests/environment/install.sh ${groups[*]}" >&2
  exit 77
fi
python=$(torch_env_python)
# A tree without git states no time.
[[ -e $root/.git ]] || export SOURCE_DATE_EPOCH=1700000000
out=$work/out
code=0
bash "$root/sdk/packaging/release.sh" --arch aarch64 --worktree --out "$out" "$@" || code=$?
[[ $code -eq 0 ]] || exit "$code"

(cd -- "$out" && sha256sum --quiet -c SHA256SUMS) || fail "SHA256SUMS is wrong, see above"
[[ $(wc -l <"$out/SHA256SUMS") -eq 9 ]] ||
  fail "expected checksums of six Debian packages, a tarball, a wheel and an SBOM, found $(cat "$out/SHA256SUMS")"
"$python" -B "$root/tests/package/sbom_check.py" "$out" || fail "the SBOM is wrong, see above"
sodium=$(awk '$1 == "libsodium-dev" { print $2 }' "$root/.cache/aarch64/versions")
grep -q "libsodium-dev@${sodium/+/%2B}\"" "$out"/*.spdx.json ||
  fail "expected libsodium-dev $sodium in the SBOM, the version for arm64, found $(grep -o 'libsodium[^"]*' "$out"/*.spdx.json)"
python3 -B "$root/tests/package/sizes.py" "$root/docs/releasing.md" "$out" || fail "the page and the packages differ, see above"

# What the packages depend on: what those for amd64 depend on, by the names of Debian.
libraries='libc6, libgcc-s1, libstdc++6'
for stated in "liboctavo1 arm64 liboctavo-bin, libsodium23, $libraries" "liboctavo-bin arm64 libsodium23, $libraries" \
  "liboctavo-dev arm64 liboctavo1" "octavo arm64 liboctavo1, libsodium23, libyaml-cpp0.7, octavo-data, $libraries" \
  "octavo-data all " "octavo-plugins arm64 $libraries"; do
  read -r name architecture depends <<<"$stated"
  package=("$out/${name}_"*.deb)
  [[ -f ${package[0]} ]] || fail "expected the package $name in $out, found none"
  dpkg-deb -x "${package[0]}" "$work/debs"
  found=$(dpkg-deb -f "${package[0]}" Architecture)
  [[ $found == "$architecture" ]] || fail "$name: expected the architecture $architecture, found $found"
  found=$(dpkg-deb -f "${package[0]}" Depends | sed 's/ ([^)]*)//g; s/, /\n/g' | LC_ALL=C sort | paste -sd,)
  expected=$(tr -d ' ' <<<"$depends" | tr , '\n' | LC_ALL=C sort | paste -sd,)
  [[ $found == "$expected" ]] || fail "$name: expected that it depends on $expected, found $found"
done

tar -C "$work" -xf "$out"/octavo-*-linux-aarch64.tar.xz
unpacked=$(echo "$work"/octavo-*-linux-aarch64)
hardened=(python3 -B "$root/tests/package/hardened.py" "$root" --aarch64)
"${hardened[@]}" "$unpacked" 7 || fail "programs or libraries of the tarball are not as they have to be, see above"
"${hardened[@]}" "$work/debs" 6 || fail "programs or libraries of the Debian packages are not as they have to be, see above"
"$python" -B "$root/tests/package/wheel_content.py" "$root" "$out"/*.whl || fail "the content of the wheel is not as expected, see above"
wheel=$work/wheel/octavo/lib
python3 -m zipfile -e "$out"/*.whl "$work/wheel"
chmod 755 "$wheel"/octavo/octavo*
"${hardened[@]}" "$work/wheel" 9 || fail "programs or libraries of the wheel are not as they have to be, see above"
# torch binds the symbols of the library of ops when it loads it. They are names of C, the same for every processor.
missing=$(comm -23 <(nm -D --undefined-only "$wheel/liboctavo_torch_ops.so" | awk '$1 == "U" && !/@[^O]/ { sub(/@.*/, "", $2); print $2 }' | LC_ALL=C sort) \
  <(nm -D --defined-only "$(torch_env_root)/lib/libtorch_cpu.so" "$wheel/liboctavo.so" | awk '{ sub(/@.*/, "", $3); print $3 }' | LC_ALL=C sort))
[[ -z $missing ]] || fail "neither torch nor liboctavo has these symbols of liboctavo_torch_ops.so: $missing"
libc=$(PYTHONPATH=$root/sdk/packaging "$python" -B -c \
  'import sys, wheel_backend; print(wheel_backend.floor(sys.argv[1]))' "$unpacked")
[[ $(basename -- "$out"/*.whl) == *"-manylinux_${libc/./_}_aarch64.whl" ]] ||
  fail "the tarball needs glibc $libc, and the wheel states another one: $(basename -- "$out"/*.whl)"
grep -q "^| \[tarball\].* glibc $libc," "$root/docs/install.md" ||
  fail "the tarball needs glibc $libc, and docs/install.md states another one"
# A check that misses a program of this processor proves nothing.
mkdir -- "$work/planted"
cp -- /bin/true "$work/planted"
seen=$("${hardened[@]}" "$work/planted" 1) && fail "hardened.py accepted a program for x86-64"
[[ $seen == *"expected a file for AArch64"* ]] || fail "expected that hardened.py names the processor, found: $seen"

for folder in "$unpacked/lib" "$work/debs/usr/lib/aarch64-linux-gnu"; do
  strict=(python3 -B "$root/sdk/cli/check_elf.py" --strict)
  "${strict[@]}" "$folder/octavo/plugins" || fail "a plugin exports more than its entry, see above"
  "${strict[@]}" --exports "$root/sdk/include/octavo/octavo.h" --exports "$root/sdk/include/octavo/draft/reduction.h" --may-need libsodium "$(realpath -- "$folder/liboctavo.so.1")" ||
    fail "liboctavo exports more than its API, see above"
  for name in te msamp reference; do
    library=$folder/octavo/plugins/$name
    expected="linux-aarch64 = { file = \"$name.so\", sha256 = \"$(sha256sum "$library.so" | cut -d' ' -f1)\" }"
    grep -qxF "$expected" "$library.octavo-plugin.toml" ||
      fail "$library.octavo-plugin.toml: expected the line $expected, found $(grep linux- "$library.octavo-plugin.toml")"
  done
done
for page in share/man/man1/octavo.1 share/bash-completion/completions/octavo; do
  [[ -s $unpacked/$page ]] || fail "expected $page in the tarball, found none"
done

# The program, on this machine. No path of its system may be hidden from it, as qemu-aarch64 -L would do, so it is given to its
# loader. liboctavo starts octavo-probe, and the kernel starts no program of another processor: a script does.
system=/usr/aarch64-linux-gnu/lib
start=(qemu-aarch64 "$system/ld-linux-aarch64.so.1" --library-path "$system")
for probe in "$unpacked/libexec/octavo/octavo-probe" "$wheel/octavo/octavo-probe"; do
  mv -- "$probe" "$probe.aarch64"
  # shellcheck disable=SC2016
  printf '#!/bin/sh\nexec %s "$0.aarch64" "$@"\n' "${start[*]}" >"$probe"
  chmod 755 "$probe"
done
for name in "${!OCTAVO_@}" LD_LIBRARY_PATH; do
  unset "$name"
done
export HOME=$work/home XDG_DATA_HOME=$work/home/data OMP_NUM_THREADS=1
mkdir -- "$HOME"
cd -- "$work"
# says <part of what is printed> <program> <argument...>
says() {
  local expected=$1 seen
  shift
  seen=$("${start[@]}" "$@" 2>&1) || fail "$* failed: $seen"
  [[ $seen == *"$expected"* ]] || fail "$*: expected '$expected', found: $seen"
}
version=$(basename -- "$unpacked" -linux-aarch64)
says "$unpacked/lib/octavo/plugins/te.octavo-plugin.toml (next to liboctavo)" "$unpacked/bin/octavo" plugin list
says "$wheel/octavo/plugins/te.octavo-plugin.toml (next to liboctavo)" "$wheel/octavo/octavo" plugin list
for octavo in "$unpacked/bin/octavo" "$wheel/octavo/octavo"; do
  says "octavo ${version#octavo-}, " "$octavo" --version
  says "nothing is wrong: FP8 runs on the CPU" "$octavo" doctor
  says " passed, 0 failed, " "$octavo" plugin verify reference
done
echo "aarch64: six Debian packages, a tarball and a wheel made, checked, and octavo of both run by qemu-aarch64"
