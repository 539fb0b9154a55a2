#!/usr/bin/env bash
# Builds Octavo in this checkout and installs it into one Python.
#
# Usage: bash install.sh [--cuda] [--python PYTHON]
#   --cuda     also builds the kernels for NVIDIA GPUs, for which it needs nvcc of CUDA Toolkit 13.0, and takes some ten minutes more
#   --python   the Python that trains. Otherwise that of the active virtual environment; otherwise .venv in this checkout, which
#              is made
#
# On Debian it installs the packages that a build needs, as root or by sudo, and names them before. Everything else has your
# rights: under sudo it goes on as the user who called. torch is installed only into a Python that has none. A second call
# builds what changed.
#
# Exit codes: 0 installed, 2 a wrong option, 1 anything else, with what was expected and what was found.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/environment/packages.sh
source "$root/tests/environment/packages.sh"

fail() {
  echo "error: $1" >&2
  exit "${2:-1}"
}

arguments=("$@")
cuda=no
python=
while [[ $# -gt 0 ]]; do
  case $1 in
    --cuda) cuda=yes ;;
    --python)
      [[ $# -ge 2 ]] || fail "--python: expected the path of a Python, found nothing" 2
      python=$2
      shift
      ;;
    *) fail "expected --cuda or --python PYTHON, found $1" 2 ;;
  esac
  shift
done

[[ $(uname -sm) =~ ^Linux\ (x86_64|aarch64)$ ]] || fail "expected Linux on x86_64 or aarch64, found $(uname -sm)"
if [[ $cuda == yes ]]; then
  CUDACXX=${CUDACXX:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
  export CUDACXX
  [[ -x $CUDACXX ]] || fail "--cuda: expected nvcc of CUDA Toolkit 13.0 on PATH or in /usr/local/cuda/bin, found none; install the toolkit, or put its bin folder on PATH"
  found=$("$CUDACXX" --version | sed -nE 's/.*release ([0-9]+\.[0-9]+).*/\1/p')
  [[ ${found%%.*} -ge 13 ]] || fail "--cuda: expected nvcc of CUDA Toolkit 13.0 or later, found ${found:-another program} in $CUDACXX"
fi

if [[ -z $python ]]; then
  active=${VIRTUAL_ENV:-${CONDA_PREFIX:-}}
  python=${active:-$root/.venv}/bin/python
  [[ -z $active || -x $python ]] || fail "expected $python, since that environment is active, found none; give --python PYTHON"
fi
if [[ $python != "$root/.venv/bin/python" ]]; then
  found=$(command -v -- "$python") || fail "--python: expected a program, found none at $python"
  python=$(cd -- "$(dirname -- "$found")" && pwd)/$(basename -- "$found")
  for each in "${!arguments[@]}"; do
    [[ ${arguments[each]} != --python ]] || arguments[each + 1]=$python
  done
fi

install_missing "${OCTAVO_BUILD_PACKAGES[@]}" python3 python3-venv binutils
if [[ $(id -u) -eq 0 && -n ${SUDO_USER:-} && $SUDO_USER != root ]]; then
  echo "Going on as $SUDO_USER"
  exec sudo -u "$SUDO_USER" -H CUDACXX="${CUDACXX:-}" bash "$root/install.sh" "${arguments[@]}"
fi
for program in cmake ninja c++ readelf python3; do
  command -v "$program" >/dev/null || fail "expected the program $program, found none; install what is named above"
done
[[ -w $root ]] || fail "expected a checkout that $(id -un) may write, found $root of $(stat -c %U "$root"); clone it as $(id -un)"
umask 022
cd -- "$root"

# The Python that trains.
if [[ $python == "$root/.venv/bin/python" && ! -x $python ]]; then
  echo "Making the virtual environment $root/.venv"
  python3 -m venv "$root/.venv" || fail "python3 -m venv failed, see above"
fi
state=$("$python" - <<'PYTHON'
import importlib.metadata, importlib.util, pathlib, sys, sysconfig
def folder(name):
    spec = importlib.util.find_spec(name)
    return spec.submodule_search_locations[0] if spec else ""
version = importlib.metadata.version("torch") if folder("torch") else ""
managed = sys.prefix == sys.base_prefix and pathlib.Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED").exists()
print(sys.version.split()[0], "yes" if sys.version_info >= (3, 10) else "no", "yes" if managed else "no", version or "none",
      folder("torch"), folder("jaxlib"), sep="\n")
PYTHON
) || fail "expected a Python, found a program that fails: $python"
# Lines: its version, is it new enough, does the system manage it, its torch, the folders of torch and jaxlib.
read_state() { mapfile -t has <<<"$1"; }
read_state "$state"
[[ ${has[1]} == yes ]] || fail "expected Python 3.10 or later, found ${has[0]} in $python; give another one by --python PYTHON"
[[ ${has[2]} == no ]] || fail "expected a Python that pip may change, found $python, which the system manages; make a virtual environment by python3 -m venv DIR and give --python DIR/bin/python"
pip=("$python" -m pip --disable-pip-version-check)
"${pip[@]}" --version >/dev/null || fail "expected pip in $python, found none; run $python -m ensurepip"
if [[ ${has[3]} == none ]]; then
  echo "Installing torch into $python, 3 GB with its libraries for GPUs. For another build of torch, install that first"
  "${pip[@]}" install 'torch>=2.11,<3' numpy || fail "pip could not install torch, see above"
  has[4]=$("$python" -c 'from importlib.util import find_spec; print(find_spec("torch").submodule_search_locations[0])')
elif [[ ! ${has[3]} =~ ^2\.(1[1-9]|[2-9][0-9]) ]]; then
  fail "expected torch 2.11 or later, below 3, found ${has[3]} in $python; run $python -m pip install 'torch>=2.11,<3'"
fi

# What builds wheels is no part of that Python.
tools=$root/.cache/install
if ! [[ -x $tools/bin/python ]] || ! cmp -s tests/environment/wheel.txt "$tools/wheel.txt"; then
  rm -rf -- "$tools"
  python3 -m venv "$tools" || fail "python3 -m venv failed, see above"
  "$tools/bin/python" -m pip install --quiet --disable-pip-version-check -r tests/environment/wheel.txt ||
    fail "pip could not install tests/environment/wheel.txt, see above"
  cp -- tests/environment/wheel.txt "$tools/wheel.txt"
fi
use_ccache "$root"
wheels=$root/out/install
rm -rf -- "$wheels"

# build <what> <folder> <setting...>: a wheel in $wheels.
build() {
  echo "Building $1"
  local log=$root/out/install.log
  mkdir -p -- "$wheels"
  "$tools/bin/python" -m pip wheel --disable-pip-version-check --no-build-isolation --no-deps -w "$wheels" \
    "${@:3}" "$2" >"$log" 2>&1 || fail "the build of $1 failed; $log ends with
$(tail -n 30 "$log")"
}
settings=("${OCTAVO_COMPILER_LAUNCHER[@]/#-D/--config-settings=cmake.define.}")
libraries=("--config-settings=cmake.define.OCTAVO_TORCH_ROOT=${has[4]}")
[[ -z ${has[5]:-} ]] || libraries+=(--config-settings=cmake.define.OCTAVO_BUILD_JAX=ON
  "--config-settings=cmake.define.OCTAVO_JAX_INCLUDE=${has[5]}/include")
build "the wheel octavo" . --config-settings=build-dir=build/install "${settings[@]}" "${libraries[@]}"
if [[ $cuda == yes ]]; then
  build "the wheel octavo-cuda" sdk/packaging/cuda "--config-settings=build-dir=$root/build/install-cuda" "${settings[@]}"
fi

# By the names of files: no index is asked.
"${pip[@]}" install --quiet --no-index --no-deps --force-reinstall "$wheels"/*.whl || fail "pip install failed, see above"
folder=$(dirname -- "$python")
echo "Installed into $python:"
(cd -- "$wheels" && printf '  %s\n' *)
"$folder/octavo" doctor || true
[[ ${VIRTUAL_ENV:-${CONDA_PREFIX:-}}/bin/python == "$python" ]] || echo "To use it: source $folder/activate"
