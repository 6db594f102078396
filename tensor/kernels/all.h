#pragma once

/// All kernels. A new kernel's header is included here and its struct appended to the list.

#include "tessera/tensor/kernels/attention.h"
#include "tessera/tensor/kernels/axpby_list.h"
#include "tessera/tensor/kernels/cat.h"
#include "tessera/tensor/kernels/channel_norm.h"
#include "tessera/tensor/kernels/conv.h"
#include "tessera/tensor/kernels/cross_entropy.h"
#include "tessera/tensor/kernels/elementwise.h"
#include "tessera/tensor/kernels/fill.h"
#include "tessera/tensor/kernels/indexing.h"
#include "tessera/tensor/kernels/kernel_list.h"
#include "tessera/tensor/kernels/matmul.h"
#include "tessera/tensor/kernels/optimizers.h"
#include "tessera/tensor/kernels/order.h"
#include "tessera/tensor/kernels/pool.h"
#include "tessera/tensor/kernels/random.h"
#include "tessera/tensor/kernels/reduce.h"
#include "tessera/tensor/kernels/rotary.h"
#include "tessera/tensor/kernels/row_norm.h"
#include "tessera/tensor/kernels/scan.h"
#include "tessera/tensor/kernels/search.h"
#include "tessera/tensor/kernels/softmax.h"
#include "tessera/tensor/kernels/swiglu.h"

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
    AxpbyListKernel,
    BinaryKernel,
    CatKernel,
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
    DropoutKernel,
    FlipKernel,
    GatherKernel,
    LinearIndexKernel,
    LionKernel,
    MaskedFillKernel,
    MaskedScaleKernel,
    MaskedScatterKernel,
    MatmulKernel,
    MaxPoolBackwardKernel,
    MaxPoolKernel,
    NonzeroKernel,
    RandomFillKernel,
    ReduceKernel,
    RotaryKernel,
    RotaryTableKernel,
    RowNormBackwardKernel,
    RowNormKernel,
    RowSumKernel,
    ScanKernel,
    ScatterKernel,
    SearchSortedKernel,
    SgdKernel,
    SoftmaxBackwardKernel,
    SoftmaxKernel,
    SquaresListKernel,
    SwigluBackwardKernel,
    SwigluKernel,
    TernaryKernel,
    TriangleKernel,
    UnaryKernel>;
// clang-format on

}  // namespace tessera
