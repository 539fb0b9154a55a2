#!/usr/bin/env bash
# Builds the source package and from it the wheel, as a release does, and uses the wheel as a user would: its content, its
# platform tag, an installation in a fresh virtual environment, a call.
#
# Usage: tests/package/wheel_test.sh [-D<variable>=<value>...]
#   -D  more options of CMake. With those of another build of this tree, ccache has every object
#
# Takes a minute, since it builds as pip does and makes a virtual environment.
# Exit code 77: torch or the build tools cannot be installed here, with the reason in print.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/environment/packages.sh
source "$root/tests/environment/packages.sh"
# shellcheck source=tests/environment/paths.sh
source "$root/tests/environment/paths.sh"

work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

fail() {
  echo "wheel: $1" >&2
  exit 1
}

bash "$root/tests/environment/install.sh" torch release
python=$(torch_env_python)
# A tree without git states no time.
[[ -e $root/.git ]] || export SOURCE_DATE_EPOCH=1700000000
code=0
bash "$root/sdk/packaging/release.sh" --worktree --only wheel --out "$work/dist" "$@" || code=$?
[[ $code -eq 0 ]] || exit "$code"
wheels=("$work"/dist/*.whl)
[[ ${#wheels[@]} -eq 1 && -f ${wheels[0]} ]] || fail "expected one wheel, found ${wheels[*]}"
wheel=${wheels[0]}

content=("$python" -B "$root/tests/package/wheel_content.py" "$root" "$wheel")
"${content[@]}" || fail "the content is not as expected, see above"
python3 -B "$root/tests/package/sizes.py" "$root/docs/releasing.md" "$work/dist" || fail "the page and the wheel differ, see above"
# A comparison that misses a missing file proves nothing.
for name in octavo/lib/octavo/plugins/te.so octavo/lib/octavo/octavo; do
  seen=$("${content[@]}" --without "$name") &&
    fail "wheel_content.py did not see that $name was left out"
  [[ $seen == *"missing in the wheel: $name"* ]] ||
    fail "wheel_content.py: expected that it names $name, found: $seen"
done
# A tag that promises more systems than the symbols allow is seen, too.
older=$work/older/$(basename -- "${wheel/manylinux_2_*_x86_64/manylinux_2_28_x86_64}")
mkdir -p -- "$work/older"
cp -- "$wheel" "$older"
seen=$("$python" -B "$root/tests/package/wheel_content.py" "$root" "$older") &&
  fail "wheel_content.py accepted the tag of ${older##*/}"
[[ $seen == *"but needs GLIBC"* ]] || fail "wheel_content.py: expected that it names the symbol that is too new, found: $seen"

# Nothing of this tree or of this user may decide what follows.
for name in "${!OCTAVO_@}" PYTHONPATH LD_LIBRARY_PATH; do
  unset "$name"
done
mkdir -p -- "$work/home"
export HOME=$work/home XDG_DATA_HOME=$work/home/data

"$python" -m venv "$work/venv"
pip=("$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-index)
# The line of the docs for a GPU: a folder with both wheels, and no index. A wheel with the name of octavo-cuda is enough here.
version=$(octavo_version "$root")
said=$("${pip[@]}" --find-links "$work/dist" 'octavo[cuda]' 2>&1) &&
  fail "octavo[cuda] was installed from a folder without octavo_cuda"
[[ $said == *"octavo-cuda==$version"* ]] || fail "expected that pip names octavo-cuda==$version, found: $said"
"$python" -B - "$work/dist" "$version" <<'PYTHON'
import sys
import zipfile

folder, version = sys.argv[1:]
with zipfile.ZipFile(f"{folder}/octavo_cuda-{version}-py3-none-any.whl", "w") as wheel:
    info = f"octavo_cuda-{version}.dist-info"
    wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: octavo-cuda\nVersion: {version}\nRequires-Dist: octavo=={version}\n")
    wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(f"{info}/RECORD", "")
PYTHON
"${pip[@]}" --find-links "$work/dist" 'octavo[cuda]' || fail "pip install failed, see above"
"$work/venv/bin/python" -c 'from importlib.metadata import version; version("octavo"), version("octavo-cuda")' ||
  fail "expected octavo and octavo-cuda, see above"
# torch comes from the environment that built the wheel.
site=$("$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$site/torch_env.pth"

cd -- "$work"
# The program that pip puts on PATH, with the plugins of the same wheel.
said=$("$work/venv/bin/octavo" doctor 2>&1) || fail "octavo doctor failed: $said"
[[ $said == *"$site/octavo/lib/octavo/plugins"* ]] ||
  fail "expected that octavo doctor names plugins below $site, found: $said"
"$work/venv/bin/octavo" init --yes >/dev/null || fail "octavo init --yes failed"
"$work/venv/bin/octavo" plugin try te >/dev/null || fail "octavo plugin try te failed"
"$work/venv/bin/python" -B - "$site" "$root" <<'PYTHON' ||
import pathlib
import re
import sys

import octavo

site, root = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
assert pathlib.Path(octavo.__file__).is_relative_to(site), octavo.__file__
octavo.explain()

plugins = {plugin for lists in (root / "plugins").glob("*/CMakeLists.txt")
           for plugin in re.findall(r"^octavo_add_plugin\((\S+)", lists.read_text(), re.M)}
found = octavo.list_plugins()
missing = {plugin for plugin in plugins if plugin not in str(found)}
assert not missing, f"expected the plugins {plugins}, found {found}"

import torch

torch.ops.load_library(site / "octavo/lib/liboctavo_torch_ops.so")
mapped = {pathlib.Path(line.split()[-1]) for line in open("/proc/self/maps")}
outside = {str(path) for path in mapped
           if "octavo" in path.name and path.suffix == ".so" and not path.is_relative_to(site)}
assert not outside, f"expected libraries below {site}, found {outside}"
print(f"wheel: octavo {octavo.version()}, {len(plugins)} plugins, torch {torch.__version__}")
PYTHON
  fail "the installed package does not work, see above"
