#include "tessera/nn/layers/dropout.h"

#include <string>

#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/random_scope.h"

namespace tessera::nn {

Dropout::Dropout(const DropoutOptions& options) : p_(options.p) {
  TESSERA_CHECK(p_ >= 0 && p_ <= 1, "nn.Dropout", "p is {}; it must lie in [0, 1]", p_);
}

void Dropout::set_split(const Split& split) {
  TESSERA_CHECK(split.part >= 0 && split.part < split.parts, "nn.Dropout",
                "part {} of {}: parts count from 0", split.part, split.parts);
  split_ = split;
}

Variable Dropout::forward(const Variable& x) {
  if (!is_training() || p_ == 0) return x;
  const std::string path = scope_name().path();
  const std::string_view layer = path.empty() ? std::string_view("Dropout") : path;
  if (split_.parts == 1) return dropout(x, {.p = p_, .layer = layer});
  const int dim = split_.dim < 0 ? split_.dim + x.ndim() : split_.dim;
  TESSERA_CHECK(dim >= 0 && dim < x.ndim(), "nn.Dropout",
                "the layer is split along dim {}, and the input has shape {}", split_.dim,
                x.shape().str());
  random::Box box = random::whole(x.shape());
  box.global[dim] = split_.parts * x.dim(dim);
  box.offset[dim] = split_.part * x.dim(dim);
  box.global[0] += random::first_sample();
  box.offset[0] += random::first_sample();
  return dropout(x, p_, random::next_key(layer).key(), box);
}

}  // namespace tessera::nn
