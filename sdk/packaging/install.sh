#!/usr/bin/env bash
# Installs Octavo from the folder that the tarball unpacks to, or removes it.
#
# Usage: ./install.sh [--prefix DIR] [--uninstall] [--dry-run]
#   --prefix     where to; /usr/local for root, ~/.local otherwise
#   --uninstall  removes what an earlier call installed there, and folders that are empty then
#   --dry-run    changes nothing, says what it would do
#
# Nothing has to be installed: bin/octavo runs from this folder, and CMake finds it by -DCMAKE_PREFIX_PATH=<this folder>.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
prefix=$HOME/.local
[[ $(id -u) -ne 0 ]] || prefix=/usr/local
uninstall=no
run=()

fail() {
  echo "error: $1" >&2
  exit "${2:-1}"
}

while [[ $# -gt 0 ]]; do
  case $1 in
    --prefix)
      [[ $# -ge 2 ]] || fail "--prefix expects a folder, found none" 2
      prefix=$2
      shift
      ;;
    --uninstall) uninstall=yes ;;
    --dry-run) run=(:) ;;
    *) fail "expected --prefix DIR, --uninstall or --dry-run, found $1" 2 ;;
  esac
  shift
done
prefix=$(realpath -m -- "$prefix")
list=share/octavo/files.txt
would=${run:+would be }

# remove: the files of the list at the prefix, then the list, then folders that are empty.
remove() {
  local file folder count=0
  while IFS= read -r file; do
    [[ $file != /* && $file != *..* ]] || fail "$prefix/$list: expected paths below the prefix, found $file"
    [[ ! -e $prefix/$file && ! -L $prefix/$file ]] || count=$((count + 1))
    "${run[@]}" rm -f -- "$prefix/$file"
  done <"$prefix/$list"
  "${run[@]}" cp -- "$prefix/$list" "$prefix/$list.removing"
  "${run[@]}" rm -f -- "$prefix/$list"
  if [[ ${#run[@]} -eq 0 ]]; then
    while IFS= read -r file; do
      folder=$(dirname -- "$file")
      while [[ $folder != . ]]; do
        echo "$folder"
        folder=$(dirname -- "$folder")
      done
    done < <(cat -- "$prefix/$list.removing" && rm -f -- "$prefix/$list.removing") | sort -ur |
      while IFS= read -r folder; do rmdir --ignore-fail-on-non-empty -- "$prefix/$folder" 2>/dev/null || true; done
  fi
  echo "$count files ${would}removed from $prefix"
}

if [[ $uninstall == yes ]]; then
  [[ -f $prefix/$list ]] || fail "expected $prefix/$list of an earlier ./install.sh --prefix $prefix, found none"
  remove
  exit 0
fi
[[ -f $here/$list ]] || fail "expected the files of the tarball next to install.sh, found no $here/$list"
[[ $here != "$prefix" ]] || fail "--prefix: expected another folder than the one of the tarball, found $prefix"

if [[ -f $prefix/$list ]]; then
  echo "The earlier installation ${would:-is }replaced"
  remove
else
  while IFS= read -r file; do
    [[ ! -e $prefix/$file ]] || fail "expected no file that this script did not install, found $prefix/$file; remove it, or choose another --prefix"
  done <"$here/$list"
fi
count=0
while IFS= read -r file; do
  "${run[@]}" mkdir -p -- "$(dirname -- "$prefix/$file")"
  "${run[@]}" cp -P --preserve=mode -- "$here/$file" "$prefix/$file"
  count=$((count + 1))
done < <(cat -- "$here/$list" && echo "$list")
echo "$count files ${would}installed to $prefix"
[[ ":$PATH:" == *":$prefix/bin:"* ]] || echo "Add $prefix/bin to PATH, or call $prefix/bin/octavo"
echo "To remove them: $here/install.sh --prefix $prefix --uninstall"
