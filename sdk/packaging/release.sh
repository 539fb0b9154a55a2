#!/usr/bin/env bash
# Makes what a release of Octavo consists of, from one commit, on Debian 12: packages for Debian, a tarball that runs from any
# folder, a source package and a wheel for pip, an SBOM and checksums.
#
# Usage: sdk/packaging/release.sh [--arch ARCH] [--out DIR] [--worktree] [--only PART[,PART...]] [--key FILE]
#                                 [--maintainer 'NAME <ADDRESS>'] [-D<variable>=<value>...]
#   --arch        x86_64 or aarch64, which is compiled for by Debian's cross compiler; x86_64 otherwise
#   --out         a new or empty folder; out/release otherwise, out/release-aarch64 for aarch64
#   --worktree    takes the files of the working tree, without those that git ignores, in place of the commit HEAD. A tree
#                 without git needs it, and SOURCE_DATE_EPOCH, the time of its commit
#   --only        deb, tarball, sdist, wheel, which brings sdist along, or cuda; everything but cuda otherwise. cuda is the wheel
#                 octavo-cuda with the kernels for NVIDIA GPUs, and needs nvcc of CUDA Toolkit 13.0 on PATH
#   --key         a secret key of minisign, with which SHA256SUMS is signed; nothing is signed otherwise
#   --maintainer  of the Debian packages
#   -D            more options of CMake
#
# Two calls on one commit are to write equal files, with the same compilers and packages: each part is built in a folder that is
# made for it, and its times are the commit's. Objects come from ccache where it has them.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/environment/packages.sh
source "$root/tests/environment/packages.sh"
# shellcheck source=tests/environment/paths.sh
source "$root/tests/environment/paths.sh"

fail() {
  echo "release: $1" >&2
  exit "${2:-1}"
}

arch=x86_64
out=
tree=
key=
maintainer='Octavo developers <octavo@example.org>'
parts=()
options=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --arch | --out | --only | --key | --maintainer)
      [[ $# -ge 2 ]] || fail "$1 expects a value, found none" 2
      case $1 in
        --arch) arch=$2 ;;
        --out) out=$2 ;;
        --only) IFS=, read -r -a parts <<<"$2" ;;
        --key) key=$2 ;;
        --maintainer) maintainer=$2 ;;
      esac
      shift
      ;;
    --worktree) tree=working ;;
    -D?*=*) options+=("$1") ;;
    *) fail "expected --arch, --out, --worktree, --only, --key, --maintainer or -D<variable>=<value>, found $1" 2 ;;
  esac
  shift
done
case $arch in
  x86_64) usual=(deb tarball sdist wheel) known=("${usual[@]}" cuda) ;;
  aarch64) usual=(deb tarball wheel) known=("${usual[@]}") ;;
  *) fail "--arch expects x86_64 or aarch64, found '$arch'" 2 ;;
esac
[[ ${#parts[@]} -gt 0 ]] || parts=("${usual[@]}")
for part in "${parts[@]}"; do
  [[ $part =~ ^(deb|tarball|sdist|wheel|cuda)$ ]] || fail "--only expects deb, tarball, sdist, wheel or cuda, found '$part'" 2
  [[ " ${known[*]} " == *" $part "* ]] || fail "--only expects ${known[*]} for $arch, found '$part'; make it without --arch" 2
done
[[ -z $key || -r $key ]] || fail "--key: expected a file that can be read, found $key" 2
suffix=${arch#x86_64}
out=$(realpath -m -- "${out:-$root/out/release${suffix:+-$suffix}}")
[[ ! -e $out || -z $(ls -A -- "$out") ]] || fail "--out: expected a new or empty folder, found files in $out" 2
[[ $(uname -sm) == "Linux x86_64" ]] || fail "expected Linux x86_64, found $(uname -sm)"
commit=none
if [[ -e $root/.git ]]; then
  commit=$(git -C "$root" rev-parse --short HEAD) || fail "expected a git checkout with a commit in $root, see above"
elif [[ $tree != working || ! ${SOURCE_DATE_EPOCH:-} =~ ^[0-9]+$ ]]; then
  fail "expected a git checkout in $root, found none; give --worktree, and set SOURCE_DATE_EPOCH to the time of the sources"
fi

# makes <part...>: whether one of them is asked for.
makes() {
  local part
  for part in "$@"; do
    [[ " ${parts[*]} " != *" $part "* ]] || return 0
  done
  return 1
}

needed=("${OCTAVO_BUILD_PACKAGES[@]}" "${OCTAVO_RELEASE_PACKAGES[@]}")
[[ -z $key ]] || needed+=(minisign)
install_missing "${needed[@]}" || exit 77
[[ $arch != aarch64 ]] || bash "$root/tests/environment/aarch64.sh" || exit
python=python3
if makes cuda; then
  command -v nvcc >/dev/null || fail "--only cuda: expected nvcc of CUDA Toolkit 13.0 on PATH, found none"
fi
if makes sdist wheel cuda; then
  bash "$root/tests/environment/install.sh" torch jax wheel
  python=$(torch_env_python)
fi

# Neither the place nor the user decides what is made.
work=$(mktemp -d "${TMPDIR:-/tmp}/octavo-release.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
umask 022
[[ $commit == none ]] || SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct)
export SOURCE_DATE_EPOCH TZ=UTC TMPDIR=$work
for name in CFLAGS CXXFLAGS CPPFLAGS LDFLAGS DEB_BUILD_OPTIONS PYTHONPATH; do
  unset "$name"
done
# pip unpacks the source package in a folder below this one, and would take another name of the compiler.
use_ccache "$work"
export CCACHE_BASEDIR=$work
compilers=(-DCMAKE_C_COMPILER=/usr/bin/cc -DCMAKE_CXX_COMPILER=/usr/bin/c++)
[[ $arch != aarch64 ]] || compilers=(-DCMAKE_TOOLCHAIN_FILE=sdk/cmake/aarch64.cmake -DOCTAVO_AARCH64_RELEASE=ON)
for option in "${OCTAVO_COMPILER_LAUNCHER[@]}" "${compilers[@]}"; do
  [[ " ${options[*]}" == *" ${option%%=*}="* ]] || options+=("$option")  # pip makes a list of what is given twice
done

# files_of_tree: what git knows or would take in; without git, everything but build output and dotfolders.
files_of_tree() {
  if [[ $commit == none ]]; then
    find . \( -path './.*' -o -name build -o -name out -o -name target -o -name __pycache__ \) -prune -o -type f -print0
  else
    git ls-files -z --cached --others --exclude-standard
  fi
}

# source_of <folder>: the files that are released, and next to them the libraries for aarch64, where its toolchain file looks.
source_of() {
  mkdir -p -- "$1"
  [[ $arch != aarch64 ]] || { mkdir -- "$1/.cache" && cp -r -- "$root/.cache/aarch64" "$1/.cache"; }
  if [[ $tree != working ]]; then
    git -C "$root" archive HEAD | tar -x -C "$1"
    return
  fi
  (cd -- "$root" && files_of_tree |
    while IFS= read -r -d '' file; do [[ ! -e $file && ! -L $file ]] || printf '%s\0' "$file"; done |
    tar --null --no-recursion -T - -cf -) | tar -x -C "$1" --no-same-permissions
}

version=$(octavo_version "$root")
echo "Octavo $version of commit $commit${tree:+, with the changes of the working tree}"
mkdir -p -- "$out"

# logged <part> <command...>: shows the end of what a command said where it fails.
logged() {
  "${@:2}" >"$work/$1.log" 2>&1 || fail "$1: failed: ${*:2:6} ...
$(tail -n 40 "$work/$1.log")"
}

make_deb() {
  local source=$work/deb/octavo-$version
  source_of "$source"
  cp -r -- "$source/sdk/packaging/debian" "$source/debian"
  sed -i "s/@MAINTAINER@/$maintainer/" "$source/debian/control"
  printf 'octavo (%s-1) unstable; urgency=medium\n\n  * Release %s.\n\n -- %s  %s\n' "$version" "$version" \
    "$maintainer" "$(date -R -d "@$SOURCE_DATE_EPOCH")" >"$source/debian/changelog"
  local libraries='' build=(dpkg-buildpackage -b -us -uc)
  if [[ $arch == aarch64 ]]; then
    # dpkg knows no packages for arm64 here: neither what must be installed, nor which one has a library.
    build+=(-aarm64 "--build-profiles=cross,nocheck" -d)
    libraries="/usr/aarch64-linux-gnu/lib:$source/.cache/aarch64/usr/lib/aarch64-linux-gnu"
    cat -- "$root/.cache/aarch64/shlibs" /var/lib/dpkg/info/lib{c6,gcc-s1,stdc++6}-arm64-cross.shlibs |
      sed 's/:arm64//' >"$source/debian/shlibs.local"
  fi
  OCTAVO_OPTIONS="${options[*]@Q}" OCTAVO_LIBRARIES=$libraries logged deb env -C "$source" "${build[@]}"
  lintian --fail-on error --allow-root --tag-display-limit 0 "$work"/deb/*.changes ||
    fail "lintian found errors in the packages, see above"
  cp -- "$work"/deb/*.deb "$out"
}

make_tarball() {
  local source=$work/tarball/octavo name=octavo-$version-linux-$arch
  source_of "$source"
  logged tarball cmake -S "$source" -B "$source/build/tarball" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_INSTALL_LIBDIR=lib -DOCTAVO_PORTABLE=ON -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON -DOCTAVO_BUILD_TESTS=OFF \
    -DOCTAVO_BUILD_SAMPLES=OFF "${options[@]}"
  logged tarball cmake --build "$source/build/tarball"
  logged tarball cmake --install "$source/build/tarball" --prefix "$work/$name" --strip
  (cd -- "$work/$name" && find . ! -type d -printf '%P\n' | LC_ALL=C sort) >"$work/files.txt"
  mv -- "$work/files.txt" "$work/$name/share/octavo/files.txt"
  install -m 755 -- "$source/sdk/packaging/install.sh" "$work/$name/install.sh"
  tar -C "$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=go-w -c "$name" |
    xz -T1 >"$out/$name.tar.xz"
}

# The source package is the same for every processor, and only one release has it.
sources=$out
[[ $arch == x86_64 ]] || sources=$work/sources
make_sdist() {
  mkdir -p -- "$sources"
  source_of "$work/sdist/octavo"
  logged sdist env -C "$work/sdist/octavo" PYTHONPATH=sdk/packaging "$python" -B -c \
    'import sys, wheel_backend; wheel_backend.build_sdist(sys.argv[1])' "$sources"
}

# set_wheel: settings, what scikit-build-core is given.
set_wheel() {
  local option
  settings=(build-dir=build/wheel)
  for option in "${options[@]}"; do
    case $option in
      -DCMAKE_BUILD_TYPE=*) settings+=("cmake.build-type=${option#*=}") ;;
      *) settings+=("cmake.define.${option#-D}") ;;
    esac
  done
}

# From the source package alone, as pip builds it for a user.
make_wheel() {
  local settings
  set_wheel
  [[ $arch != aarch64 ]] || settings+=("cmake.define.OCTAVO_AARCH64_ROOT=$root/.cache/aarch64")
  logged wheel "$python" -m pip wheel --disable-pip-version-check --no-build-isolation --no-deps --no-cache-dir \
    "${settings[@]/#/--config-settings=}" -w "$out" "$sources/octavo-$version.tar.gz"
}

make_cuda() {
  local source=$work/cuda/octavo settings
  source_of "$source"
  set_wheel
  logged cuda env -C "$source/sdk/packaging/cuda" PYTHONPATH=.. "$python" -B -c \
    'import sys, wheel_backend; wheel_backend.build_wheel(sys.argv[1], dict(one.split("=", 1) for one in sys.argv[2:]))' \
    "$out" "${settings[@]}"
}

for part in deb tarball sdist wheel cuda; do
  if makes "$part" || { [[ $part == sdist ]] && makes wheel; }; then
    SECONDS=0
    "make_$part"
    echo "$part: $SECONDS s"
  fi
done
sbom=octavo-$version${suffix:+-linux-$suffix}.spdx.json
versions=()
[[ $arch != aarch64 ]] || versions=("$root/.cache/aarch64/versions")
"$python" -B "$root/sdk/packaging/sbom.py" "$root" "$out" "$version" "$SOURCE_DATE_EPOCH" "${versions[@]}" >"$work/$sbom" ||
  fail "no SBOM, see above"
mv -- "$work/$sbom" "$out"
(cd -- "$out" && sha256sum -- * >"$work/SHA256SUMS" && mv -- "$work/SHA256SUMS" .)
if [[ -n $key ]]; then
  minisign -S -s "$key" -m "$out/SHA256SUMS" -t "octavo $version" || fail "minisign could not sign SHA256SUMS with $key"
else
  echo "SHA256SUMS is not signed: no --key was given"
fi
echo "In $out:"
(cd -- "$out" && stat -c '%9s  %n' -- *)
