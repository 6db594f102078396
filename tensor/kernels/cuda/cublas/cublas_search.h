#pragma once

/// For benchmarks: how far products are from the best that cuBLASLt proposes.

#include "tessera/tensor/kernels/matmul.h"

namespace tessera::cuda {

/// Microseconds of one product, medians of rounds in which both took turns.
struct ProductTimes {
  double ours = 0;
  double best = 0;     ///< of the algorithms that were tried, whatever their reduction
  int algorithms = 0;  ///< that were tried
  int proposed = 0;    ///< by the heuristic, at most 512, those first that it expects to be quick
};
/// `args` have one regular batch, no bias and no activation, and dtypes that the library writes.
/// `workspace` is what the algorithms may use; ours gets of it what it asks for.
///
/// Algorithms are looked at in the heuristic's order for at most one second: each runs once to load
/// its code and once for its time, and what is not plainly slower than the best so far is timed
/// with care. Then the best of them take turns. Careful times are of captured graphs of calls, so
/// that the host plays no part. With a product of T ms a call takes at most about 1 s + 95 rounds
/// of max(3, 4 T) ms, so 1.3 s with T up to 0.75. Waits for the stream. Throws as products do.
ProductTimes compare_with_best(CudaStream stream, const MatmulKernel::Args& args,
                               Workspace workspace);

}  // namespace tessera::cuda
