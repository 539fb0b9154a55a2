#!/usr/bin/env bash
# Makes a Python environment with torch for builds, tests and samples, once.
#
# Usage: tests/environment/install.sh [group...]
#        tests/environment/install.sh --check [group...]
#   groups    torch (always), ecosystem (Accelerate, Transformers, Lightning, ...), jax (what
#             the adapter for JAX needs), oracles (what tests/oracles compares with), wheel (what builds a wheel),
#             release (what its test compares it with), disassembler (of device code), trl, deepspeed,
#             strangers (programs of others), equinox (and what jax.export needs), site (of the documents), conan (the package
#             manager), mutation (universalmutator); <group>.txt and
#             <group>.apart.txt list each
#   --check   installs nothing; says whether these groups are complete
#
# The folder is $OCTAVO_TORCH_ENV, else .cache/torch of the repository, which git ignores. Each
# group leaves a copy of its list there, so a second call downloads nothing, one with more groups
# adds those, and a changed list is installed again (a changed torch.txt: everything).
#
# Exit codes: 0 when the groups are complete, 77 when they cannot be made here (no network, no such
# Python) or, with --check, are not, with the reason in print. Anything else is a fault.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/environment/paths.sh
source "$here/paths.sh"
folder=$(torch_env_folder)
python=$(torch_env_python)

check_only=no
groups=(torch)
for argument in "$@"; do
  if [[ $argument == --check && $check_only == no ]]; then
    check_only=yes
  elif [[ $argument == torch ]]; then
    :
  elif [[ $argument =~ ^[a-z]+$ && (-f $here/$argument.txt || -f $here/$argument.apart.txt) ]]; then
    groups+=("$argument")
  else
    echo "error: expected a group (torch, ecosystem, jax, oracles, wheel, release, disassembler, trl, deepspeed, strangers, equinox, site, conan, mutation), found $argument" >&2
    exit 2
  fi
done

cannot() {
  echo "Torch environment: $1" >&2
  exit 77
}

# stamp_of <group>: what <folder>/stamps/<group> holds when the group is complete.
stamp_of() {
  [[ ! -f $here/$1.txt ]] || cat "$here/$1.txt"
  [[ ! -f $here/$1.apart.txt ]] || cat "$here/$1.apart.txt"
  [[ $1 != torch ]] || cat "$here/cuda_stand_ins.py"
}

is_complete() {
  [[ -f $folder/stamps/$1 ]] && stamp_of "$1" | cmp -s - "$folder/stamps/$1"
}

# missing_groups: those asked for that are not complete.
missing_groups() {
  local group
  for group in "${groups[@]}"; do
    is_complete "$group" || echo "$group"
  done
}

mapfile -t missing < <(missing_groups)
if [[ ${#missing[@]} -eq 0 ]]; then
  echo "Torch environment: complete in $folder (${groups[*]})"
  exit 0
fi
if [[ $check_only == yes ]]; then
  for group in "${missing[@]}"; do
    if [[ -f $folder/stamps/$group ]]; then
      cannot "$folder was made for other versions than tests/environment/$group.txt names"
    fi
  done
  cannot "no complete installation of ${missing[*]} in $folder"
fi

if [[ $(uname -sm) != "Linux x86_64" ]]; then
  cannot "expected Linux x86_64, for which the versions are pinned, found $(uname -sm)"
fi
# Never empty a folder that something else filled.
if [[ -d $folder && ! -f $folder/pyvenv.cfg && -n $(ls -A "$folder") ]]; then
  echo "error: expected an empty folder or a virtual environment, found other files in $folder;" \
    "set OCTAVO_TORCH_ENV to another folder" >&2
  exit 1
fi

# Two calls at once take turns; the second one may find that nothing is left to do.
mkdir -p -- "$(dirname -- "$folder")"
exec 9>"$folder.lock"
flock 9
mapfile -t missing < <(missing_groups)

# size_of <group>: what is downloaded, and what it takes on the disk.
size_of() {
  case $1 in
    torch) echo "570 MB, 1.4 GB on the disk" ;;
    ecosystem) echo "73 MB, 350 MB on the disk" ;;
    jax) echo "150 MB, 610 MB on the disk" ;;
    oracles) echo "8 MB, 50 MB on the disk" ;;
    wheel) echo "1 MB, 3 MB on the disk" ;;
    release) echo "5 MB, 20 MB on the disk" ;;
    disassembler) echo "5 MB, 5 MB on the disk" ;;
    trl) echo "60 MB, 280 MB on the disk" ;;
    deepspeed) echo "5 MB, 35 MB on the disk" ;;
    strangers) echo "65 MB, 260 MB on the disk" ;;
    equinox) echo "1 MB, 3 MB on the disk" ;;
    site) echo "29 MB, 81 MB on the disk" ;;
    conan) echo "3 MB, 18 MB on the disk" ;;
    mutation) echo "1 MB, 1 MB on the disk" ;;
  esac
}

# pip_install <list> [option...]
pip_install() {
  local list=$1
  shift
  "$python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --retries 2 \
    --no-deps --only-binary :all: "$@" -r "$here/$list" ||
    cannot "pip could not install tests/environment/$list, see above"
}

# install_group <group>
install_group() {
  echo "Torch environment: downloading the group $1 ($(size_of "$1")) from the Python package" \
    "index into $folder"
  [[ ! -f $here/$1.txt ]] || pip_install "$1.txt"
  if [[ -f $here/$1.apart.txt ]]; then
    # A folder for each group, so that a program finds no other one's; oracles has the outer one.
    local apart=apart/$1
    [[ $1 != oracles ]] || apart=apart
    DS_BUILD_OPS=0 pip_install "$1.apart.txt" --target "$folder/$apart" --upgrade
  fi
  if [[ $1 == torch ]]; then
    "$python" "$here/cuda_stand_ins.py" \
      "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
    "$python" -c 'import numpy, safetensors, torch'
  fi
  mkdir -p -- "$folder/stamps"
  stamp_of "$1" >"$folder/stamps/$1.part"
  mv -- "$folder/stamps/$1.part" "$folder/stamps/$1"
}

if [[ " ${missing[*]} " == *" torch "* ]]; then
  rm -rf -- "$folder"
  python3 -m venv "$folder" || cannot "python3 -m venv failed, see above (Debian: python3-venv)"
  mapfile -t missing < <(missing_groups)
fi
for group in "${missing[@]}"; do
  install_group "$group"
done
