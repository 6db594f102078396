#include "tessera/autograd/ops/image.h"

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/conv.h"
#include "tessera/autograd/ops/elementwise.h"
#include "tessera/autograd/ops/index.h"
#include "tessera/autograd/ops/view.h"
#include "tessera/tensor/ops/composed/image.h"

namespace tessera {

// unfold and fold are adjoint: each is the derivative of the other.
Variable unfold(const Variable& x, const UnfoldOptions& options) {
  const Tensor y = unfold(x.tensor(), options);
  const Size2d image(x.dim(-2), x.dim(-1));
  return record_twice("unfold", y, {x},
                      [image, options](const Variable& dy, const BackwardContext&) {
                        return Gradients{fold(dy, image, options)};
                      });
}

Variable fold(const Variable& x, Size2d output, const UnfoldOptions& options) {
  return record_twice("fold", fold(x.tensor(), output, options), {x},
                      [options](const Variable& dy, const BackwardContext&) {
                        return Gradients{unfold(dy, options)};
                      });
}

Variable pixel_shuffle(const Variable& x, std::int64_t upscale_factor) {
  return composed::pixel_shuffle(x, upscale_factor);
}
Variable pixel_unshuffle(const Variable& x, std::int64_t downscale_factor) {
  return composed::pixel_unshuffle(x, downscale_factor);
}
Variable channel_shuffle(const Variable& x, std::int64_t groups) {
  return composed::channel_shuffle(x, groups);
}
Variable interpolate(const Variable& x, const InterpolateOptions& options) {
  return composed::interpolate(x, options);
}

}  // namespace tessera
