#pragma once

/// Activations that a linear layer can apply to its result (a fused epilogue).

#include <cstdint>

namespace tessera {

enum class ActivationKind : std::uint8_t {
  kNone,
  kRelu,
  kGelu,      ///< the exact GELU, by erf
  kGeluTanh,  ///< GELU's approximation by tanh
  kSilu,      ///< x / (1 + exp(-x)), also called swish
};

}  // namespace tessera
