#include "tessera/nn/layers/image.h"

#include "tessera/autograd/ops/ops.h"

namespace tessera::nn {

Variable Upsample::forward(const Variable& x) { return interpolate(x, options_); }

Variable Unfold::forward(const Variable& x) { return unfold(x, options_); }

Variable Fold::forward(const Variable& x) { return fold(x, options_.output, options_.windows); }

Variable PixelShuffle::forward(const Variable& x) {
  return pixel_shuffle(x, options_.upscale_factor);
}

Variable PixelUnshuffle::forward(const Variable& x) {
  return pixel_unshuffle(x, options_.downscale_factor);
}

Variable ChannelShuffle::forward(const Variable& x) { return channel_shuffle(x, options_.groups); }

Variable ConstantPad1d::forward(const Variable& x) {
  return pad(x, {{options_.left, options_.right}}, options_.value);
}

Variable ConstantPad2d::forward(const Variable& x) {
  return pad(x, {{options_.top, options_.bottom}, {options_.left, options_.right}}, options_.value);
}

template <class Derived, PadMode kMode>
Variable detail::ModePad1d<Derived, kMode>::forward(const Variable& x) {
  return pad(x, {{options_.left, options_.right}}, kMode);
}

template <class Derived, PadMode kMode>
Variable detail::ModePad2d<Derived, kMode>::forward(const Variable& x) {
  return pad(x, {{options_.top, options_.bottom}, {options_.left, options_.right}}, kMode);
}

template class detail::ModePad1d<ReflectionPad1d, PadMode::kReflect>;
template class detail::ModePad2d<ReflectionPad2d, PadMode::kReflect>;
template class detail::ModePad1d<ReplicationPad1d, PadMode::kReplicate>;
template class detail::ModePad2d<ReplicationPad2d, PadMode::kReplicate>;
template class detail::ModePad1d<CircularPad1d, PadMode::kCircular>;
template class detail::ModePad2d<CircularPad2d, PadMode::kCircular>;

}  // namespace tessera::nn
