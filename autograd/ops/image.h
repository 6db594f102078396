#pragma once

/// The differentiable counterparts of tensor/ops/image.h. All twice.

#include "tessera/autograd/variable.h"
#include "tessera/tensor/ops/image.h"

namespace tessera {

Variable unfold(const Variable& x, const UnfoldOptions& options);
Variable fold(const Variable& x, Size2d output, const UnfoldOptions& options);
Variable pixel_shuffle(const Variable& x, std::int64_t upscale_factor);
Variable pixel_unshuffle(const Variable& x, std::int64_t downscale_factor);
Variable channel_shuffle(const Variable& x, std::int64_t groups);
Variable interpolate(const Variable& x, const InterpolateOptions& options);

}  // namespace tessera
