#pragma once

/// The differentiable counterparts of tensor/ops/ops.h: same names, shapes and errors, on Variable.
/// Each derivative stands right below its forward in the .cc files. "twice": the derivative is made
/// of differentiable operations, so create_graph works. Results without a gradient are tensors
/// (predicates.h).

#include "tessera/autograd/ops/activations.h"
#include "tessera/autograd/ops/attention.h"
#include "tessera/autograd/ops/conv.h"
#include "tessera/autograd/ops/diagonal.h"
#include "tessera/autograd/ops/einsum.h"
#include "tessera/autograd/ops/elementwise.h"
#include "tessera/autograd/ops/image.h"
#include "tessera/autograd/ops/index.h"
#include "tessera/autograd/ops/mask.h"
#include "tessera/autograd/ops/matmul.h"
#include "tessera/autograd/ops/nn.h"
#include "tessera/autograd/ops/order.h"
#include "tessera/autograd/ops/predicates.h"
#include "tessera/autograd/ops/products.h"
#include "tessera/autograd/ops/quantile.h"
#include "tessera/autograd/ops/reduce.h"
#include "tessera/autograd/ops/scan.h"
#include "tessera/autograd/ops/shape.h"
#include "tessera/autograd/ops/similarity.h"
#include "tessera/autograd/ops/stacking.h"
#include "tessera/autograd/ops/view.h"
#include "tessera/autograd/variable.h"
