#pragma once

/// All eager operations on tensors, without gradients. See the headers for shapes and errors.
///
/// Common rules. The operands of an operation have one device and, except for elementwise
/// operations, which promote, one dtype; else InvalidArgument with both. Results are new contiguous
/// tensors on the operands' device. Errors are tagged with the operation's name. Operations are
/// issued on the thread's current stream and are deterministic: the bits do not depend on the
/// number of threads. The one exception, on GPUs, is named in determinism.h.

#include "tessera/tensor/ops/activations.h"
#include "tessera/tensor/ops/attention.h"
#include "tessera/tensor/ops/conv.h"
#include "tessera/tensor/ops/counting.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/diagonal.h"
#include "tessera/tensor/ops/einsum.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/image.h"
#include "tessera/tensor/ops/index.h"
#include "tessera/tensor/ops/lists.h"
#include "tessera/tensor/ops/mask.h"
#include "tessera/tensor/ops/matmul.h"
#include "tessera/tensor/ops/nn.h"
#include "tessera/tensor/ops/norm.h"
#include "tessera/tensor/ops/optim.h"
#include "tessera/tensor/ops/order.h"
#include "tessera/tensor/ops/pool.h"
#include "tessera/tensor/ops/products.h"
#include "tessera/tensor/ops/quantile.h"
#include "tessera/tensor/ops/random.h"
#include "tessera/tensor/ops/reduce.h"
#include "tessera/tensor/ops/scan.h"
#include "tessera/tensor/ops/shape.h"
#include "tessera/tensor/ops/similarity.h"
#include "tessera/tensor/ops/stacking.h"
#include "tessera/tensor/ops/view.h"
