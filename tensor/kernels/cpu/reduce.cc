#include "tessera/tensor/kernels/reduce.h"

#include "tessera/tensor/kernels/cpu/reduce_blocks.h"
#include "tessera/tensor/kernels/cpu/short_sums.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {

void ReduceKernel::cpu(const Args& a, Workspace scratch) {
  with_compute_type(a.x.dtype, [&]<class C>() {
    if (cpu::ShortSums<C>::fits(a)) return cpu::ShortSums<C>(a).run();
    folds::with_fold<C>(a.op, [&]<class F>() { cpu::Reduction<F, C>(a, scratch).run(); });
  });
}

void SquaresListKernel::cpu(const Args& a, Workspace scratch) {
  double total = 0;
  for (const ConstView& tensor : a.tensors) {
    double sum = 0;
    ReduceKernel::Args one = one_tensor(tensor);
    one.y = {.data = &sum, .dtype = DType::kF64, .shape = {}, .strides = {}};
    ReduceKernel::cpu(one, scratch);
    total += sum;
  }
  *a.y.as<double>() = total;
}

}  // namespace tessera
