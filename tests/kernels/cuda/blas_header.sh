#!/usr/bin/env bash
# The values of tests/support/cuda_on_cpu/include/cublasLt.h against those of CUDA's own header.
#
#   bash tests/kernels/cuda/blas_header.sh [folder of the toolkit's headers]
#
# Compares every enumerator, function type and struct size of the fake header, and fails where they
# differ. Exit 77: there is no toolkit here.
set -euo pipefail
here=$(cd "$(dirname "$0")/../../.." && pwd)
fake=$here/tests/support/cuda_on_cpu/include
real=${1:-/usr/local/cuda/include}
if [[ ! -r $real/cublasLt.h ]]; then
  echo "no $real/cublasLt.h: nothing to compare with"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

names=$(grep -oE '\b(CUBLAS|CUBLASLT|CUDA_R)_[A-Za-z0-9_]+ = ' "$fake/cublasLt.h" | sed 's/ = //' | sort -u)
{
  echo '#include <cublasLt.h>'
  echo '#include <cstddef>'
  echo '#include <cstdio>'
  echo '#include <typeinfo>'
  echo '#define SHOW(name) std::printf("%s %lld\n", #name, static_cast<long long>(name))'
  echo 'int main() {'
  for name in $names; do echo "  SHOW($name);"; done
  for type in cublasLtMatmulAlgo_t cublasLtMatmulHeuristicResult_t cublasStatus_t cudaDataType; do
    echo "  SHOW(sizeof($type));"
  done
  echo '  SHOW(offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));'
  echo '  SHOW(offsetof(cublasLtMatmulHeuristicResult_t, state));'
  # Arguments and results, as the compiler names a function's type.
  functions=$(grep -oE 'cublasLt[A-Z][A-Za-z]+\(' "$fake/cublasLt.h" | tr -d '(' | sort -u)
  for function in $functions; do echo "  std::printf(\"%s %s\\n\", \"$function\", typeid(decltype($function)).name());"; done
  echo '}'
} >"$work/values.cpp"
${CXX:-c++} -std=c++20 -I"$fake" "$work/values.cpp" -o "$work/fake"
${CXX:-c++} -std=c++20 -isystem "$real" "$work/values.cpp" -o "$work/real"
"$work/fake" >"$work/fake.txt"
"$work/real" >"$work/real.txt"
if ! diff "$work/fake.txt" "$work/real.txt"; then
  echo "< is the fake header, > is $real/cublasLt.h; expected equal values" >&2
  exit 1
fi
echo "$(wc -l <"$work/fake.txt") values are those of $real/cublasLt.h"
