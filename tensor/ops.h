#pragma once

/// All eager operations on tensors: no gradients; check, allocate, launch. See the headers for
/// shapes and errors.
///
/// Common rules. Operands of one operation have one device and, but for elementwise ones, which
/// promote, one dtype; else InvalidArgument naming both. Results are new contiguous tensors on the
/// operands' device. Errors are tagged with the operation's name. Operations are issued on the
/// thread's current stream and are deterministic: equal bits for any number of threads.

#include "tessera/tensor/ops_attention.h"
#include "tessera/tensor/ops_conv.h"
#include "tessera/tensor/ops_create.h"
#include "tessera/tensor/ops_dropout.h"
#include "tessera/tensor/ops_elementwise.h"
#include "tessera/tensor/ops_index.h"
#include "tessera/tensor/ops_matmul.h"
#include "tessera/tensor/ops_nn.h"
#include "tessera/tensor/ops_norm.h"
#include "tessera/tensor/ops_optim.h"
#include "tessera/tensor/ops_order.h"
#include "tessera/tensor/ops_pool.h"
#include "tessera/tensor/ops_random.h"
#include "tessera/tensor/ops_reduce.h"
#include "tessera/tensor/ops_rotary.h"
#include "tessera/tensor/ops_shape.h"
