#pragma once

/// Differentiable convolution and pooling. Shapes, options and errors: tensor/ops/conv.h and
/// tensor/ops/pool.h.

#include "tessera/autograd/variable.h"
#include "tessera/tensor/ops/conv.h"
#include "tessera/tensor/ops/pool.h"

namespace tessera {

/// Twice. Gradients of weight and bias are written into their slots.
Variable conv1d(const Variable& x, const Variable& weight, const Variable& bias = {},
                const Conv1dOptions& options = {});
Variable conv2d(const Variable& x, const Variable& weight, const Variable& bias = {},
                const Conv2dOptions& options = {});
/// Twice.
Variable conv_transpose1d(const Variable& x, const Variable& weight, const Variable& bias = {},
                          const ConvTranspose1dOptions& options = {});
Variable conv_transpose2d(const Variable& x, const Variable& weight, const Variable& bias = {},
                          const ConvTranspose2dOptions& options = {});

/// The maxima alone; where they lie is kept for the derivative. Once, not twice.
Variable max_pool1d(const Variable& x, const MaxPool1dOptions& options);
Variable max_pool2d(const Variable& x, const MaxPool2dOptions& options);
Variable adaptive_max_pool1d(const Variable& x, std::int64_t output);
Variable adaptive_max_pool2d(const Variable& x, Size2d output);

/// Twice.
Variable avg_pool1d(const Variable& x, const AvgPool1dOptions& options);
Variable avg_pool2d(const Variable& x, const AvgPool2dOptions& options);
Variable adaptive_avg_pool1d(const Variable& x, std::int64_t output);
Variable adaptive_avg_pool2d(const Variable& x, Size2d output);

}  // namespace tessera
