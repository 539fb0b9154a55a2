# shellcheck shell=bash disable=SC2034
# packages.sh: installs the Debian packages that are missing. Sourced by samples/quickstart.sh and
# tests/run.sh, which state what they need; it says what it is about to install before it does.

# libopenmpi-dev, openmpi-bin: liboctavo_mpi is built and tested where they are.
# minisign: docs/operate.md signs with it.
# libyaml-cpp-dev: `octavo init --from` reads the YAML of Accelerate.
OCTAVO_BUILD_PACKAGES=(
  g++ cmake ninja-build libboost-dev libtomlplusplus-dev libcli11-dev nlohmann-json3-dev
  libsodium-dev libxxhash-dev libyaml-cpp-dev pkg-config
)
OCTAVO_TEST_PACKAGES=(
  libgtest-dev libgmock-dev libboost-context-dev libbenchmark-dev clang libclang-rt-14-dev clang-format python3
  libopenmpi-dev openmpi-bin python3-dev python3-venv python3-cffi python3-jsonschema bindgen cargo rustc rustfmt binutils ccache valgrind libdnnl-dev libopenblas-dev libsimde-dev abigail-tools minisign
)
# What samples/opencl_kernels is built with, and an OpenCL that computes on the CPU.
OCTAVO_OPENCL_PACKAGES=(ocl-icd-opencl-dev opencl-headers pocl-opencl-icd)
# What sdk/packaging/release.sh makes the packages of a release with.
OCTAVO_RELEASE_PACKAGES=(debhelper dpkg-dev fakeroot lintian ccache xz-utils)

is_installed() {
  [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

# run_as_root <command...>: directly as root, through sudo otherwise.
run_as_root() {
  if [[ $(id -u) -eq 0 ]]; then
    env DEBIAN_FRONTEND=noninteractive "$@"
  else
    sudo env DEBIAN_FRONTEND=noninteractive "$@"
  fi
}

apt_get() {
  run_as_root apt-get -o DPkg::Lock::Timeout=120 "$@"
}

# install_missing <package...>: returns at once when every package is there.
install_missing() {
  if ! command -v dpkg-query >/dev/null; then
    echo "This is no Debian system, so nothing is installed. Needed, by their Debian names: $*" >&2
    return 0
  fi

  local package missing=()
  for package in "$@"; do
    is_installed "$package" || missing+=("$package")
  done
  [[ ${#missing[@]} -gt 0 ]] || return 0

  echo "Missing Debian packages: ${missing[*]}"
  if [[ $(id -u) -ne 0 ]] && ! command -v sudo >/dev/null; then
    echo "error: expected to run as root or to find sudo, found neither. As root, run:" >&2
    echo "  apt-get install --no-install-recommends ${missing[*]}" >&2
    return 1
  fi
  echo "Installing them with apt-get install --no-install-recommends"

  # A fresh image has no package lists, and old lists name files that are gone.
  local updated=no
  for package in "${missing[@]}"; do
    if [[ $updated == no ]] && ! apt-cache show "$package" >/dev/null 2>&1; then
      apt_get update || return 1
      updated=yes
    fi
  done
  apt_get install -y --no-install-recommends "${missing[@]}" && return 0
  if [[ $updated == no ]] && apt_get update &&
    apt_get install -y --no-install-recommends "${missing[@]}"; then
    return 0
  fi
  echo "error: apt-get could not install: ${missing[*]}" >&2
  return 1
}

# octavo_version <root>: the version that abi.h states, such as 0.1.0.
octavo_version() {
  sed -nE 's/^#define OCTAVO_VERSION_(MAJOR|MINOR|PATCH) ([0-9]+).*/\2/p' "$1/sdk/include/octavo/abi.h" | paste -sd.
}

# use_ccache <root>: sets OCTAVO_COMPILER_LAUNCHER to the CMake options that use ccache, where there is
# one. Clones of the tree share its cache: paths below root count relative to it, a precompiled header by
# its content, and the locale, which Python sets for its children, does not count.
use_ccache() {
  OCTAVO_COMPILER_LAUNCHER=()
  if command -v ccache >/dev/null; then
    OCTAVO_COMPILER_LAUNCHER=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
    export CCACHE_BASEDIR="${CCACHE_BASEDIR:-$1}" CCACHE_NOHASHDIR=1
    export CCACHE_SLOPPINESS="${CCACHE_SLOPPINESS:-pch_defines,time_macros,locale}"
  fi
}
