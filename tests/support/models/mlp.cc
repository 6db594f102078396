#include "tessera/tests/support/models/mlp.h"

#include "tessera/autograd/ops/ops.h"

namespace tessera::testing {

MLP::MLP(const MLPOptions& options)
    : in_proj_({.in = options.dim,
                .out = options.multiplier * options.dim,
                .bias = options.bias,
                .dtype = options.dtype}),
      out_proj_({.in = options.multiplier * options.dim,
                 .out = options.dim,
                 .bias = options.bias,
                 .dtype = options.dtype}) {
  register_module("in_proj", in_proj_);
  register_module("out_proj", out_proj_);
  if (!options.with_buffer) return;
  buffer_.emplace(nn::BufferOptions{
      .shape = {options.dim}, .dtype = options.dtype, .init = nn::init::normal(0, 1)});
  register_buffer("buffer", *buffer_);
}

Variable MLP::forward(const Variable& x) {
  const Variable z = relu(out_proj_(relu(in_proj_(x))));
  return buffer_ ? z + Variable(buffer_->tensor()) : z;
}

MLPStack::MLPStack(const MLPStackOptions& options)
    : first_({.dim = options.dim, .multiplier = 3, .dtype = options.dtype}),
      second_({.dim = options.dim, .dtype = options.dtype}),
      third_({.dim = options.dim, .multiplier = 3, .dtype = options.dtype}) {
  register_module("0", first_);
  register_module("1", second_);
  register_module("2", third_);
  if (!options.with_seq_parallel) return;
  norm_.emplace(
      nn::LayerNormOptions{.shape = {options.dim}, .bias = false, .dtype = options.dtype});
  register_module("3", *norm_);
}

Variable MLPStack::forward(Variable x) {
  x = third_(second_(first_(x)));
  return norm_ ? (*norm_)(x) : x;
}

}  // namespace tessera::testing
