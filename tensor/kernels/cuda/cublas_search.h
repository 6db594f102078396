#pragma once

/// For benchmarks: how far products are from the best that cuBLASLt proposes.

#include "tessera/tensor/kernels/matmul.h"

namespace tessera::cuda {

/// Microseconds of one product, medians of rounds in which both took turns.
struct ProductTimes {
  double ours = 0;
  double best =
      0;  ///< of up to 512 algorithms that the heuristic proposes, whatever their reduction
  int algorithms = 0;  ///< that were tried
};
/// `args` have one regular batch, no bias and no activation, and dtypes that the library writes.
/// `workspace` is what the algorithms may use; ours gets of it what it asks for. Everything is
/// timed as a captured graph of calls, so that the host plays no part. Waits for the stream. Throws
/// as products do.
ProductTimes compare_with_best(CudaStream stream, const MatmulKernel::Args& args,
                               Workspace workspace);

}  // namespace tessera::cuda
