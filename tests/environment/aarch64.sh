#!/usr/bin/env bash
# Installs what is missing to compile for linux-aarch64 on an x86-64 Debian and to run the result.
#
# Usage: bash tests/environment/aarch64.sh [--python] && cmake --preset cpu-aarch64 && cmake --build --preset cpu-aarch64
#   --python  Debian's Python for arm64 as well, with which qemu runs the wheel
#
# The compiler and qemu-user come from apt. The libraries that Octavo links, Debian's for arm64, are only
# unpacked, into .cache/aarch64, so the system gets no second architecture; Python goes into
# .cache/aarch64-python.
# Exit code 77: they cannot be had here, with the reason in print.
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tests/environment/packages.sh
source tests/environment/packages.sh

packages=(g++-aarch64-linux-gnu qemu-user)
libraries=(libsodium23 libsodium-dev libyaml-cpp0.7 libyaml-cpp-dev libgtest-dev libgmock-dev)
python=(python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libbz2-1.0 libexpat1 libffi8 liblzma5 libuuid1 zlib1g)

if [[ $# -gt 1 || ${1:---python} != --python ]]; then
  echo "error: expected --python or nothing, found $*" >&2
  exit 2
fi
if ! command -v apt-get >/dev/null; then
  echo "aarch64: skipped, this is no Debian system. Needed, by their Debian names: ${packages[*]}, and for arm64 ${libraries[*]}"
  exit 77
fi
install_missing "${packages[@]}" || exit 77

work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
# Lists and packages of their own: the system's stay as they are.
apt_arm64() {
  apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::Lists="$work/lists" \
    -o Dir::Cache="$work" -o Debug::NoLocking=1 -o APT::Sandbox::User="$(id -un)" "$@"
}

# unpack <folder> <package...>: the folder appears when it is complete.
unpack() {
  local root=$1 deb
  shift
  [[ -f $root/installed && -f $root/versions && $(<"$root/installed") == "$*" ]] && return 0
  echo "Unpacking Debian's packages for arm64 into $root: $*"
  rm -rf -- "${work:?}"/*
  mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/control" "$work/debs" "$work/root"
  if ! apt_arm64 update || ! (cd -- "$work/debs" && apt_arm64 download "$@"); then
    echo "aarch64: skipped, apt-get cannot download the packages for arm64, see above"
    exit 77
  fi
  for deb in "$work"/debs/*.deb; do
    dpkg-deb -x "$deb" "$work/root"
    dpkg-deb -e "$deb" "$work/control/${deb##*/}"
    dpkg-deb -W --showformat='${Package} ${Version}\n' "$deb" >>"$work/root/versions"
  done
  # What a package that links these libraries depends on: for sdk/packaging/release.sh.
  cat "$work"/control/*/shlibs >"$work/root/shlibs"
  echo "$*" >"$work/root/installed"
  mkdir -p .cache
  rm -rf -- "$root"
  mv -- "$work/root" "$root"
  chmod 755 "$root"
}
unpack .cache/aarch64 "${libraries[@]}"
[[ $# -eq 0 ]] || unpack .cache/aarch64-python "${python[@]}"
