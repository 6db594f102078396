#!/usr/bin/env bash
# cuBLASLt is called only through the table of tensor/kernels/cuda/cublas/cublas_library.h: no object has an undefined symbol of
# the library. With the emulated GPU, programs are linked with stand-ins, so only this test finds a direct call there.
#
#     cublas_calls_test.sh ARCHIVE...
set -euo pipefail
symbols=$(nm --demangle "$@")
if ! grep -q ' T tessera::cuda::multiply' <<<"$symbols"; then
  echo "these archives do not compute products: $*"
  exit 1
fi
if direct=$(grep -w 'U cublas[A-Z]\w*' <<<"$symbols"); then
  echo "called directly, and not by cublaslt() of tensor/kernels/cuda/cublas/cublas_library.h:"
  sort -u <<<"$direct"
  exit 1
fi
