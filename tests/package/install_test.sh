#!/usr/bin/env bash
# install.sh: what it refuses, with its message, and two calls for one Python, into which it installs octavo.
#
# Usage: tests/package/install_test.sh [-D<variable>=<value>...]
#   -D  more options of CMake. With those of another build of this tree, ccache has every object
#
# Takes a minute, since it builds as pip does. Exit code 77: torch cannot be installed here, with the reason in print.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/environment/packages.sh
source "$root/tests/environment/packages.sh"
# shellcheck source=tests/environment/paths.sh
source "$root/tests/environment/paths.sh"

work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

fail() {
  echo "install: $1" >&2
  exit 1
}
unset VIRTUAL_ENV CONDA_PREFIX

# refuses <exit code> <words> [NAME=VALUE...] [-- argument...]
refuses() {
  local code=$1 words=$2 said status=0 variables=()
  shift 2
  while [[ $# -gt 0 && $1 != -- ]]; do
    variables+=("$1")
    shift
  done
  said=$(env "${variables[@]}" bash "$root/install.sh" "${@:2}" 2>&1) || status=$?
  [[ $status -eq $code ]] || fail "${*:2}: expected exit code $code, found $status: $said"
  [[ $said == *"error: "*"$words"* ]] || fail "${*:2}: expected '$words', found: $said"
}

# python_that_is <name> <line...>: a program that answers what install.sh asks of a Python.
python_that_is() {
  { echo '#!/bin/sh'; echo "[ \"\$1\" = - ] || exit $pip_fails"; printf 'echo "%s"\n' "${@:2}"; } >"$work/$1"
  chmod +x "$work/$1"
}
pip_fails=0
python_that_is old 3.9.2 no no none '' ''
python_that_is managed 3.11.2 yes yes none '' ''
python_that_is old_torch 3.11.2 yes no 2.10.1+cpu /torch ''
python_that_is new_torch 3.11.2 yes no 3.0.0 /torch ''
pip_fails=1
python_that_is no_pip 3.11.2 yes no none '' ''
printf '#!/bin/sh\nexit 1\n' >"$work/fails"
printf '#!/bin/sh\necho "Cuda compilation tools, release 12.4, V12.4.131"\n' >"$work/nvcc"
mkdir "$work/bin"
printf '#!/bin/sh\necho "Linux riscv64"\n' >"$work/bin/uname"
chmod +x "$work"/{fails,nvcc,bin/uname}

refuses 2 "expected --cuda or --python PYTHON, found --gpu" -- --gpu
refuses 2 "--python: expected the path of a Python, found nothing" -- --python
refuses 1 "expected Linux on x86_64 or aarch64, found Linux riscv64" "PATH=$work/bin:$PATH"
refuses 1 "expected nvcc of CUDA Toolkit 13.0 on PATH or in /usr/local/cuda/bin, found none" CUDACXX=/nowhere/nvcc -- --cuda
refuses 1 "expected nvcc of CUDA Toolkit 13.0 or later, found 12.4 in $work/nvcc" "CUDACXX=$work/nvcc" -- --cuda
refuses 1 "expected $work/gone/bin/python, since that environment is active, found none" "VIRTUAL_ENV=$work/gone"
refuses 1 "--python: expected a program, found none at $work/absent" -- --python "$work/absent"
refuses 1 "expected a Python, found a program that fails: $work/fails" -- --python "$work/fails"
refuses 1 "expected Python 3.10 or later, found 3.9.2 in $work/old" -- --python "$work/old"
refuses 1 "found $work/managed, which the system manages; make a virtual environment" -- --python "$work/managed"
refuses 1 "expected pip in $work/no_pip, found none" -- --python "$work/no_pip"
refuses 1 "expected torch 2.11 or later, below 3, found 2.10.1+cpu in $work/old_torch; run " -- --python "$work/old_torch"
refuses 1 "expected torch 2.11 or later, below 3, found 3.0.0" -- --python "$work/new_torch"

# Containerfile: its one RUN calls install.sh where COPY puts the checkout, without what is built in one.
run=$(sed -n 's/^RUN //p' "$root/Containerfile")
bash -n <<<"$run" || fail "Containerfile: RUN is no shell: $run"
[[ $run == "bash /opt/octavo/install.sh \$OPTIONS && "* ]] || fail "Containerfile: expected that RUN calls install.sh, found $run"
grep -qx 'COPY . /opt/octavo' "$root/Containerfile" || fail "Containerfile: expected COPY . /opt/octavo"
for each in .git .cache .venv build out; do
  grep -qx "$each" "$root/.containerignore" || fail ".containerignore: expected $each, found $(tr '\n' ' ' <"$root/.containerignore")"
done

bash "$root/tests/environment/install.sh" torch
python=$(torch_env_python)
"$python" -m venv "$work/venv"
site=$("$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$site/torch_env.pth"
defines=()
for option in "$@"; do
  case $option in
    -DCMAKE_BUILD_TYPE=*) export SKBUILD_CMAKE_BUILD_TYPE=${option#*=} ;;
    *) defines+=("${option@Q}") ;;
  esac
done
export CMAKE_ARGS="${defines[*]}"
# With the home below the cache would be an empty one.
if command -v ccache >/dev/null; then
  CCACHE_DIR=$(ccache --get-config cache_dir)
  export CCACHE_DIR
fi
mkdir -p -- "$work/home"
for call in first second; do
  said=$(HOME=$work/home VIRTUAL_ENV=$work/venv bash "$root/install.sh" 2>&1) || fail "the $call call failed: $said"
  [[ $said == *"Installed into $work/venv/bin/python:"*"octavo-$(octavo_version "$root")-py3-none-manylinux_"*"fix first "* ]] ||
    fail "the $call call: expected the wheel and the page of octavo doctor, found: $said"
done
cd -- "$work"
for name in "${!OCTAVO_@}" PYTHONPATH LD_LIBRARY_PATH; do
  unset "$name"
done
found=$(HOME=$work/home "$work/venv/bin/python" -B -c 'import octavo; octavo.prepare; print(octavo.__file__)') ||
  fail "the package does not work, see above"
[[ $found == "$site/"* ]] || fail "expected octavo in $site, found $found"
echo "install: 13 refusals, two calls"
