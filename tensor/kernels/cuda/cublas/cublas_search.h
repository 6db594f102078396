#pragma once

/// For benchmarks: compares products with the best algorithm that cuBLASLt proposes.

#include "tessera/tensor/kernels/matmul.h"

namespace tessera::cuda {

/// Microseconds of one product: medians of rounds in which both alternate.
struct ProductTimes {
  double ours = 0;
  double best = 0;     ///< of the algorithms that were tried, with any reduction scheme
  int algorithms = 0;  ///< number of algorithms tried
  int proposed = 0;    ///< number proposed by the heuristic, at most 512, in its order
};
/// `args` have one regular batch, no bias and no activation, and dtypes that the library writes.
/// The algorithms may use `workspace`; our product uses as much of it as it needs.
///
/// Algorithms are tried in the heuristic's order for at most one second. Each runs once to load its
/// code and once for its time; unless it is clearly slower than the best so far, it is then timed
/// carefully. Then the best ones alternate. Careful timings are of captured graphs of calls, so
/// that host time does not matter. For a product of T ms this function takes at most about 1 s + 95
/// rounds of max(3, 4 T) ms, which is 1.3 s for T up to 0.75. Waits for the stream. Throws as
/// products do.
ProductTimes compare_with_best(CudaStream stream, const MatmulKernel::Args& args,
                               Workspace workspace);

}  // namespace tessera::cuda
