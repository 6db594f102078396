// Three Linear(2, 2) in sequence: Net of PyTorch's FSDP tests, for tests of replicate's module
// registry.
#pragma once

#include "tessera/nn/layer.h"
#include "tessera/nn/layers/linear.h"

namespace tessera::testing {

struct NetOptions {
  DType dtype = DType::kF32;
};

class Net final : public nn::Layer<Net> {
 public:
  using Options = NetOptions;
  explicit Net(const NetOptions& options = {})
      : fc1_({.in = 2, .out = 2, .dtype = options.dtype}),
        fc2_({.in = 2, .out = 2, .dtype = options.dtype}),
        fc3_({.in = 2, .out = 2, .dtype = options.dtype}) {
    register_module("fc1", fc1_);
    register_module("fc2", fc2_);
    register_module("fc3", fc3_);
  }
  Variable forward(const Variable& x) { return fc3_(fc2_(fc1_(x))); }

 private:
  nn::Linear fc1_, fc2_, fc3_;
};

}  // namespace tessera::testing
