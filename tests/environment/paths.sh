# shellcheck shell=bash
# paths.sh: where install.sh puts torch. Sourced by scripts that use it.

# torch_env_folder: $OCTAVO_TORCH_ENV, else .cache/torch of the repository.
torch_env_folder() {
  local here
  here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
  echo "${OCTAVO_TORCH_ENV:-$here/.cache/torch}"
}

# torch_env_python: the environment's interpreter.
torch_env_python() {
  echo "$(torch_env_folder)/bin/python"
}

# jax_env_include: the folder of XLA's FFI headers, for C++ builds: $OCTAVO_JAX_INCLUDE, else the
# environment's; fails without output when there is none.
jax_env_include() {
  local python include
  python=$(torch_env_python)
  include=${OCTAVO_JAX_INCLUDE:-$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/jaxlib/include}
  [[ -f $include/xla/ffi/api/ffi.h ]] || return 1
  echo "$include"
}

# torch_env_root: a torch package's folder, with include/ and lib/, for C++ builds.
# $OCTAVO_TORCH_ROOT, else the environment's; fails without output when there is none.
torch_env_root() {
  if [[ -n ${OCTAVO_TORCH_ROOT:-} ]]; then
    echo "$OCTAVO_TORCH_ROOT"
    return 0
  fi
  local python root
  python=$(torch_env_python)
  [[ -x $python ]] || return 1
  root=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch
  [[ -d $root/include && -d $root/lib ]] || return 1
  echo "$root"
}
