#pragma once

/// Differentiable scaled dot-product attention. Shapes, rules and errors: tensor/ops/attention.h.

#include <optional>
#include <string_view>

#include "tessera/autograd/variable.h"
#include "tessera/tensor/ops/attention.h"

namespace tessera {

struct AttentionLayerOptions {
  bool causal = false;
  CausalAlignment alignment = CausalAlignment::kTopLeft;
  Tensor mask = {};                  ///< gets no gradient
  std::optional<double> scale = {};  ///< 1 / sqrt(dim) when not given
  double dropout_p = 0;              ///< of the probabilities, while training
  bool training = true;
  /// The layer's name, for the next key of the open random::StepScope; required with training and
  /// dropout_p > 0.
  std::string_view layer = {};
  /// Where the probabilities [.., heads, queries, keys] lie in those of all ranks. Empty: with 4
  /// dims or more dim 0 is the samples, from random::first_sample() on, and all else is whole.
  random::Box box = {};
};

/// Once, not twice: the derivative is a kernel of its own. It keeps q, k, v, the output and one
/// number a query. Throws InvalidArgument for dropout without a layer's name.
Variable scaled_dot_product_attention(const Variable& q, const Variable& k, const Variable& v,
                                      const AttentionLayerOptions& options = {});

}  // namespace tessera
