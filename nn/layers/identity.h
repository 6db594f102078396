#pragma once

/// y = x: takes a layer's place in a container. PyTorch's takes any arguments and ignores them;
/// ours takes none.

#include "tessera/nn/layer.h"

namespace tessera::nn {

class Identity final : public Layer<Identity> {
 public:
  Variable forward(const Variable& x) { return x; }
};

}  // namespace tessera::nn
