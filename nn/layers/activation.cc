#include "tessera/nn/layers/activation.h"

#include "tessera/autograd/ops.h"

namespace tessera::nn {

Variable ReLU::forward(const Variable& x) { return relu(x); }

Variable GELU::forward(const Variable& x) { return gelu(x); }

}  // namespace tessera::nn
