#pragma once

/// Functions for optimizers that are composed of tensor operations, a few for each parameter. Private to
/// this folder.

#include <array>

#include "tessera/nn/parameter.h"
#include "tessera/tensor/tensor.h"

namespace tessera::nn::optim {

/// Throws InvalidArgument, tagged `where`, unless the option is at least 0.
void check_at_least_0(const char* where, const char* option, double value);
/// Throws InvalidArgument unless both lie in [0, 1).
void check_betas(const char* where, const std::array<double, 2>& betas);

/// +-grad + weight_decay * p, minus to maximize, in the dtype of states: f32 for 16 bits. May be the gradient itself.
Tensor descent_gradient(const Parameter& parameter, bool maximize, double weight_decay);

/// p = (1 - shrink) p - factor * direction, rounded once.
void descend(const Parameter& parameter, const Tensor& direction, double factor, double shrink = 0);

/// Throws StateError, tagged `where`, for a parameter of which this rank has a part only.
void check_whole(const char* where, const Parameter& parameter);

}  // namespace tessera::nn::optim
