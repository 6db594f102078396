#pragma once

/// All kernels. A new kernel's header is included here and its struct appended to the list.

#include "tessera/tensor/kernels/adam.h"
#include "tessera/tensor/kernels/arange.h"
#include "tessera/tensor/kernels/arg_extreme.h"
#include "tessera/tensor/kernels/argsort.h"
#include "tessera/tensor/kernels/attention.h"
#include "tessera/tensor/kernels/axpby.h"
#include "tessera/tensor/kernels/binary.h"
#include "tessera/tensor/kernels/channel_norm.h"
#include "tessera/tensor/kernels/conv.h"
#include "tessera/tensor/kernels/cross_entropy.h"
#include "tessera/tensor/kernels/cumsum.h"
#include "tessera/tensor/kernels/dropout.h"
#include "tessera/tensor/kernels/flip.h"
#include "tessera/tensor/kernels/gather.h"
#include "tessera/tensor/kernels/kernel_list.h"
#include "tessera/tensor/kernels/linear_index.h"
#include "tessera/tensor/kernels/lion.h"
#include "tessera/tensor/kernels/masked_fill.h"
#include "tessera/tensor/kernels/matmul.h"
#include "tessera/tensor/kernels/pool.h"
#include "tessera/tensor/kernels/random_fill.h"
#include "tessera/tensor/kernels/reduce.h"
#include "tessera/tensor/kernels/rotary.h"
#include "tessera/tensor/kernels/row_norm.h"
#include "tessera/tensor/kernels/scatter.h"
#include "tessera/tensor/kernels/sgd.h"
#include "tessera/tensor/kernels/softmax.h"
#include "tessera/tensor/kernels/squares_list.h"
#include "tessera/tensor/kernels/ternary.h"
#include "tessera/tensor/kernels/triangle.h"
#include "tessera/tensor/kernels/unary.h"

namespace tessera {

// clang-format off
using AllKernels = KernelList<
    AdamKernel,
    ArangeKernel,
    ArgExtremeKernel,
    ArgsortKernel,
    AttentionBackwardKernel,
    AttentionKernel,
    AvgPoolBackwardKernel,
    AvgPoolKernel,
    AxpbyKernel,
    BinaryKernel,
    ChannelFinishKernel,
    ChannelNormBackwardKernel,
    ChannelNormKernel,
    ChannelStatisticsKernel,
    ChannelSumsKernel,
    ConvBackwardInputKernel,
    ConvBackwardWeightKernel,
    ConvKernel,
    CrossEntropyBackwardKernel,
    CrossEntropyKernel,
    CumsumKernel,
    DropoutKernel,
    FlipKernel,
    GatherKernel,
    LinearIndexKernel,
    LionKernel,
    MaskedFillKernel,
    MatmulKernel,
    MaxPoolBackwardKernel,
    MaxPoolKernel,
    RandomFillKernel,
    ReduceKernel,
    RotaryKernel,
    RotaryTableKernel,
    RowNormBackwardKernel,
    RowNormKernel,
    ScatterKernel,
    SgdKernel,
    SoftmaxBackwardKernel,
    SoftmaxKernel,
    SquaresListKernel,
    TernaryKernel,
    TriangleKernel,
    UnaryKernel>;
// clang-format on

}  // namespace tessera
