#include "tessera/tensor/kernels/reduce.h"

#include "tessera/tensor/kernels/cpu/reduce_blocks.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {

void ReduceKernel::cpu(const Args& a, Workspace scratch) {
  with_compute_type(a.x.dtype, [&]<class C>() {
    folds::with_fold<C>(a.op, [&]<class F>() { cpu::Reduction<F, C>(a, scratch).run(); });
  });
}

}  // namespace tessera
