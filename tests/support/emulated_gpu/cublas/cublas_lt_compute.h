#pragma once

/// The arithmetic of an emulated matrix product, on memory of the emulated GPU.
///
/// Sums over k run from first to last (in parts, where the algorithm splits them) in f32, or in f64
/// for f64 operands. Products in TF32 round their operands first. The epilogue works
/// on alpha * A * B + beta * C in that type and rounds once, when it stores; GELU is the
/// approximation by tanh.

#include "tessera/tests/support/emulated_gpu/cublas/cublas_lt_algorithms.h"

namespace tessera::emulated::cublas {

struct Product {
  Problem problem;
  Algorithm algorithm;
  const void *a = nullptr, *b = nullptr, *c = nullptr;
  void* d = nullptr;
  void* workspace = nullptr;
  double alpha = 0, beta = 0;
};
void compute(const Product& product);

}  // namespace tessera::emulated::cublas
