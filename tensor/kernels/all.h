#pragma once

/// Every kernel. A new one is included here and appended to the list.

#include "tessera/tensor/kernels/arange.h"
#include "tessera/tensor/kernels/argmax.h"
#include "tessera/tensor/kernels/axpby.h"
#include "tessera/tensor/kernels/binary.h"
#include "tessera/tensor/kernels/cross_entropy.h"
#include "tessera/tensor/kernels/kernel_list.h"
#include "tessera/tensor/kernels/matmul.h"
#include "tessera/tensor/kernels/random_fill.h"
#include "tessera/tensor/kernels/reduce.h"
#include "tessera/tensor/kernels/sgd.h"
#include "tessera/tensor/kernels/softmax.h"
#include "tessera/tensor/kernels/ternary.h"
#include "tessera/tensor/kernels/unary.h"

namespace tessera {

// clang-format off: one a line, so that additions do not meet
using AllKernels =
    KernelList<ArangeKernel, ArgmaxKernel, AxpbyKernel, BinaryKernel, CrossEntropyBackwardKernel,
               CrossEntropyKernel, MatmulKernel, RandomFillKernel, ReduceKernel, SgdKernel,
               SoftmaxKernel, TernaryKernel, UnaryKernel>;
// clang-format on

}  // namespace tessera
