#pragma once

// Small transformers of the tests, and their masks.

#include <vector>

#include "tessera/nn/layers/transformer/transformer.h"
#include "tessera/tensor/tensor.h"

namespace tessera::testing {

inline Tensor bools(const std::vector<bool>& values, const Shape& shape) {
  return Tensor::from_vector(values, shape);
}
// The last key of the first of two samples of three keys is padding.
inline Tensor padding() { return bools({false, false, true, false, false, false}, {2, 3}); }

inline nn::TransformerLayerOptions small(bool norm_first, bool batch_first = true) {
  return {.dim = 4,
          .heads = 2,
          .feedforward = 3,
          .dropout = 0,
          .batch_first = batch_first,
          .norm_first = norm_first,
          .dtype = DType::kF64};
}

inline nn::TransformerMasks padded_and_causal() {
  return {.src = {.key_padding_mask = padding()},
          .tgt = {.is_causal = true},
          .memory = {.key_padding_mask = padding()}};
}

}  // namespace tessera::testing
