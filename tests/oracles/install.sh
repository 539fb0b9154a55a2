#!/usr/bin/env bash
# Installs what tests/oracles compares Octavo with into a folder of its own, once.
#
# Usage: tests/oracles/install.sh
# The folder is $OCTAVO_ORACLES, else .cache/oracles of the repository, which git ignores. A second
# call finds it complete and downloads nothing; a change of requirements.txt starts it anew.
#
# Exit codes: 0 when the folder is complete, 77 when it cannot be made here (no network, no such
# Python), with the reason in print; the tests then skip. Anything else is a fault.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
folder=${OCTAVO_ORACLES:-$(cd -- "$here/../.." && pwd)/.cache/oracles}
# run.py compares this stamp, too.
stamp=$(cat "$here/requirements.txt" "$here/cuda_stand_ins.py" | sha256sum | cut -d ' ' -f 1)

if [[ -f $folder/complete && $(<"$folder/complete") == "$stamp" ]]; then
  echo "Oracles: complete in $folder"
  exit 0
fi

cannot() {
  echo "Oracles: $1" >&2
  echo "Oracles: the tests labelled torch and oracles will be skipped" >&2
  exit 77
}

if [[ $(uname -sm) != "Linux x86_64" ]]; then
  cannot "expected Linux x86_64, for which the versions are pinned, found $(uname -sm)"
fi
# Never empty a folder that something else filled.
if [[ -d $folder && ! -f $folder/pyvenv.cfg && -n $(ls -A "$folder") ]]; then
  echo "error: expected an empty folder or a virtual environment, found other files in $folder;" \
    "set OCTAVO_ORACLES to another folder" >&2
  exit 1
fi

echo "Oracles: downloading 560 MB from the Python package index (torch, torchao, the recipes of" \
  "Transformer Engine) into $folder, 1.5 GB"
rm -rf -- "$folder"
mkdir -p -- "$folder"
python3 -m venv "$folder" || cannot "python3 -m venv failed, see above (Debian: python3-venv)"
python="$folder/bin/python"
"$python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --retries 2 \
  --no-deps --only-binary :all: -r "$here/requirements.txt" ||
  cannot "pip could not install tests/oracles/requirements.txt, see above"

"$python" "$here/cuda_stand_ins.py" "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
"$python" -c 'import numpy, pydantic, torch, torchao'
echo "$stamp" >"$folder/complete"
