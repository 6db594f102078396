#include "tessera/tensor/kernels/squares_list.h"

namespace tessera {

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
