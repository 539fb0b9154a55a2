#!/usr/bin/env bash
# Runs the tests of the op library in the newest torch that the package index has, with the very
# binary that was built for the torch of tests/environment. Downloads about 600 MB once a version,
# so tests/run.sh leaves it out: docs/testing.md says when to run it.
#
# Usage: tests/host_adapters/newest_torch.sh <build folder of the preset torch>
# Exit codes: 0 passed, 77 not possible here with the reason in print, else a fault.
set -euo pipefail

if [[ $# -ne 1 || ! -f $1/lib/liboctavo_torch_ops.so ]]; then
  echo "error: expected a build folder with lib/liboctavo_torch_ops.so, found ${1:-nothing};" \
    "build the preset torch first" >&2
  exit 2
fi
build=$(cd -- "$1" && pwd)
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$root/.cache/newest_torch

cannot() {
  echo "newest torch: $1" >&2
  exit 77
}

python3 -m venv "$folder" || cannot "python3 -m venv failed, see above"
python=$folder/bin/python
# Complete but for CUDA's libraries, for which stand-ins are made below.
"$python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --upgrade --no-deps \
  --only-binary :all: torch numpy safetensors filelock fsspec jinja2 MarkupSafe "mpmath<1.4" \
  networkx sympy typing_extensions pytest pluggy iniconfig packaging pygments ||
  cannot "pip could not install the newest torch, see above"
# Its libtorch_cpu links these two, which are small.
"$python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps \
  --only-binary :all: nvidia-cuda-runtime nvidia-cuda-cupti ||
  cannot "pip could not install cudart and cupti, see above"
"$python" "$root/tests/environment/cuda_stand_ins.py" \
  "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
"$python" -c 'import torch; print("newest torch:", torch.__version__)'

cd "$folder"
OMP_NUM_THREADS=1 OCTAVO_LIBRARY_DIR=$build/lib PYTHONPATH=$root/host_adapters/python \
  "$python" -B -m pytest -q -rs -p no:cacheprovider \
  "$root"/tests/host_adapters/python/{linear,msamp,state,prepare,coupling_steps,real_weights,again,refusals}_test.py \
  "$root"/tests/host_adapters/python/{ops,ops_arguments,guide_compile,ddp}_test.py
