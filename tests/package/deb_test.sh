#!/usr/bin/env bash
# The Debian packages that sdk/packaging/release.sh made, as a user meets them: doctor, a training, a program in C; removed and
# purged, they leave nothing.
#
# Usage: tests/package/deb_test.sh <folder of the packages> [--root]
#   --root  installs them in a Debian of their own, which debootstrap makes once (300 MB, into .cache/debian), as root.
#           Without it they are unpacked into a folder, which shows neither dependencies nor removal
#
# Exit code 77: no such Debian can be made here, with the reason in print.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
fail() {
  echo "deb: $1" >&2
  exit "${2:-1}"
}

[[ $# -ge 1 && -d $1 ]] || fail "expected the folder of the packages, found ${1:-nothing}" 2
packages=("$(realpath -- "$1")"/*.deb)
[[ -f ${packages[0]} ]] || fail "expected packages in $1, found none"

# Each file is in one package, and each package has the files of its name.
for package in "${packages[@]}"; do
  dpkg-deb --fsys-tarfile "$package" | tar -t | sed "/\/$/d; s|^|${package##*/} |"
done >"$work/files"
twice=$(cut -d' ' -f2 "$work/files" | sort | uniq -d)
[[ -z $twice ]] || fail "expected each file in one package, found in two: $twice"
# holds <package> <pattern>: the package has such a file, and no other package has.
holds() {
  local found
  found=$(grep -E " \./$2\$" "$work/files" | sed 's/_.*//' | sort -u)
  [[ $found == "$1" ]] || fail "expected $2 in the package $1 alone, found it in '${found:-none}'"
}
multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
holds liboctavo1 "usr/lib/$multiarch/liboctavo\.so\.1(\.[0-9.]+)?"
holds liboctavo-bin "usr/lib/$multiarch/octavo/octavo-probe"
holds liboctavo-dev "usr/include/octavo/.*\.hp?p?"
holds liboctavo-dev "usr/lib/$multiarch/(liboctavo\.so|pkgconfig/octavo\.pc|cmake/octavo/octavo-config\.cmake)"
holds octavo "usr/(bin/octavo|share/man/man1/octavo.*\.gz|share/bash-completion/completions/octavo)"
holds octavo-data "usr/share/(doc/octavo/docs/reasons\.md|octavo/.*)"
holds octavo-plugins "usr/lib/$multiarch/octavo/plugins/.*"
for name in te msamp reference; do
  holds octavo-plugins "usr/lib/$multiarch/octavo/plugins/$name\.so"
done

cat >"$work/program.c" <<'C'
#include <octavo/octavo.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  octavo_str version = octavo_version();
  printf("%.*s\n", (int)version.size, version.data);
  return version.size == strlen(EXPECTED) && memcmp(version.data, EXPECTED, version.size) == 0 ? 0 : 1;
}
C
version=$(dpkg-deb -f "${packages[0]}" Version)
# What a user does, in the unpacked folder or in the Debian of its own; $1 is /usr of the installation.
cat >"$work/use.sh" <<'USE'
set -eu
cd "$(mktemp -d)"
octavo doctor || test $? -eq 1  # a machine without torch has something to fix
octavo plugin list | grep -q "^  $1/lib/.*/octavo/plugins/te.octavo-plugin.toml" ||
  { octavo plugin list; echo "expected te below $1" >&2; exit 1; }
octavo init --yes
octavo plugin try te
cc -Wall -Werror -DEXPECTED="\"$3\"" "$2" $(pkg-config --cflags --libs octavo) -o program
./program
USE

if [[ ${2:-} != --root ]]; then
  echo "deb: unpacked into a folder, not installed; tests/package/deb_test.sh $1 --root installs and removes them"
  for package in "${packages[@]}"; do
    dpkg-deb -x "$package" "$work/root"
  done
  for name in "${!OCTAVO_@}"; do
    unset "$name"
  done
  env HOME="$work/home" XDG_DATA_HOME="$work/home/data" PATH="$work/root/usr/bin:$PATH" LD_LIBRARY_PATH="$work/root/usr/lib/$multiarch" \
    PKG_CONFIG_PATH="$work/root/usr/lib/$multiarch/pkgconfig" \
    bash "$work/use.sh" "$work/root/usr" "$work/program.c" "${version%-*}" >"$work/log" 2>&1 ||
    fail "the unpacked packages do not work: $(tail -n 20 "$work/log")"
  echo "deb: ${#packages[@]} packages, each file in one of them, octavo doctor, try and a program in C"
  exit 0
fi

[[ $(id -u) -eq 0 ]] || fail "expected to run as root, which makes and enters another Debian, found $(id -un)" 77
command -v debootstrap >/dev/null || fail "expected debootstrap (apt-get install debootstrap), found none" 77
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
# What the packages depend on, and a compiler.
include=gcc,libc6-dev,libsodium23,libyaml-cpp0.7,pkg-config
base=$root/.cache/debian/$suite-${include//,/-}.tar
if [[ ! -f $base ]]; then
  echo "deb: making a Debian $suite in ${base#"$root"/}, a download of 100 MB"
  debootstrap --variant=minbase --include="$include" "$suite" "$work/base" >"$work/log" 2>&1 ||
    fail "debootstrap failed: $(tail -n 5 "$work/log")" 77
  mkdir -p -- "${base%/*}"
  tar -C "$work/base" --exclude=./var/cache/apt/archives/*.deb --exclude=./proc/* --exclude=./sys/* -cf "$base.part" .
  mv -- "$base.part" "$base"
  rm -rf -- "$work/base"
fi
mkdir -- "$work/debian"
tar -C "$work/debian" -xf "$base"
mkdir -- "$work/debian/packages"
cp -- "${packages[@]}" "$work/program.c" "$work/use.sh" "$work/debian/packages"

# files: everything but what apt, dpkg and the loader's cache note of any package.
cat >"$work/debian/packages/all.sh" <<'ALL'
set -eu
mount -t proc proc /proc
export HOME=/root
files() {
  find / -xdev \( -path /packages -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/log -o -path /tmp -o -path /proc -o -path /var/cache \) \
    -prune -o -print | LC_ALL=C sort
}
files >/packages/before
apt-get install -y --no-install-recommends /packages/*.deb
dpkg --audit
sh /packages/use.sh /usr /packages/program.c "$1"
rm -rf /root/.local /root/.cache  # of the user who ran octavo
names=$(for file in /packages/*.deb; do dpkg-deb -f "$file" Package; done)
dpkg -r $names
dpkg -P $names
files >/packages/after
diff /packages/before /packages/after
! grep -r -l octavo /var/lib/dpkg/info /etc
ALL
unshare --mount --pid --fork true 2>/dev/null || fail "expected that namespaces can be made (unshare --mount --pid), found they cannot" 77
unshare --mount --pid --fork chroot "$work/debian" sh /packages/all.sh "${version%-*}" >"$work/log" 2>&1 ||
  fail "the packages do not work in a Debian of their own: $(tail -n 30 "$work/log")"
echo "deb: ${#packages[@]} packages installed, used, removed and purged in a Debian $suite; nothing is left"
