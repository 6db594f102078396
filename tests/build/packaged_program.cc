// For package_test: computes with a kernel.

#include <cstdio>

#include "tessera/tensor/ops/ops.h"

int main() {
  using namespace tessera;
  const Tensor x = reshape(arange(6, {.dtype = DType::kF32}), {2, 3});
  std::printf("%g\n", sum(matmul(x, x.transpose(0, 1))).item<double>());
}
