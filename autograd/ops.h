#pragma once

/// Differentiable twins of tensor/ops.h: same names, shapes and errors, on Variable. Each
/// derivative stands right below its forward in the .cc files. "twice": the derivative is made of
/// differentiable operations, so create_graph works.

#include "tessera/autograd/ops_attention.h"
#include "tessera/autograd/ops_conv.h"
#include "tessera/autograd/ops_elementwise.h"
#include "tessera/autograd/ops_index.h"
#include "tessera/autograd/ops_matmul.h"
#include "tessera/autograd/ops_nn.h"
#include "tessera/autograd/ops_order.h"
#include "tessera/autograd/ops_reduce.h"
#include "tessera/autograd/ops_shape.h"
#include "tessera/autograd/ops_view.h"
#include "tessera/autograd/variable.h"
