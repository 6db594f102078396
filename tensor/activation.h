#pragma once

/// Activations that a linear layer applies to its result on the way out.

#include <cstdint>

namespace tessera {

enum class Activation : std::uint8_t {
  kNone,
  kRelu,
  kGelu,      ///< with the distribution function of the normal distribution, by erf
  kGeluTanh,  ///< its approximation by tanh
  kSilu,      ///< x / (1 + exp(-x)), also called swish
};

}  // namespace tessera
