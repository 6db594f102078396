#pragma once

/// y = x W^T + b over the last dim.
///
///     x [..., in] -> y [..., out]     weight [out, in], bias [out]
///
/// Both start uniform in [-1/sqrt(in), 1/sqrt(in)), as in PyTorch, unless told otherwise. x has the
/// layer's dtype; in an AutocastGuard any floating one. 16-bit products are summed in f32 and
/// rounded once. All of PyTorch's options but device (see nn::initialize).

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "tessera/nn/layer.h"
#include "tessera/tensor/ops/create.h"

namespace tessera::nn {

struct LinearOptions {
  std::int64_t in = 0;   ///< required, >= 1
  std::int64_t out = 0;  ///< required, >= 1
  bool bias = true;
  DType dtype = DType::kF32;
  /// Initial values of weight and bias (init.h); empty: PyTorch's.
  Initializer weight_init = {};
  Initializer bias_init = {};
  /// Of the result's rows. kAligned is for a result of many columns, not a multiple of 8, on a GPU:
  /// with the 50257 of GPT-2's vocabulary all products of its logits are faster.
  RowPitch pitch = RowPitch::kPacked;
};

class Linear final : public Layer<Linear> {
 public:
  using Options = LinearOptions;
  /// Throws InvalidArgument unless in and out are at least 1, and for a bias_init without a bias.
  explicit Linear(const LinearOptions& options);
  Linear(int, int, const auto&...) = delete;  ///< {.in = 3, .out = 4}

  /// Throws InvalidArgument naming the weight when x does not end in a dim of extent `in`, or its
  /// dtype differs.
  Variable forward(const Variable& x);

  Parameter& weight() { return weight_; }
  bool has_bias() const { return bias_.has_value(); }
  /// Throws StateError when built without.
  Parameter& bias();

  /// What is done to x W^T ahead of the bias: where ranks hold some columns of the weight each,
  /// their products are added up there, and the bias once to the sum. Null: nothing.
  void set_before_bias(std::function<Variable(const Variable&)> function) {
    before_bias_ = std::move(function);
  }

 private:
  Parameter weight_;
  std::optional<Parameter> bias_;
  RowPitch pitch_;
  std::function<Variable(const Variable&)> before_bias_;
};

}  // namespace tessera::nn
