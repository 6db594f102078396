#include "tessera/nn/layers/dropout.h"

#include <string>

#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/random_scope.h"

namespace tessera::nn {

namespace {

double checked(const char* where, const DropoutOptions& options) {
  TESSERA_CHECK(options.p >= 0 && options.p <= 1, where, "p is {}; it must lie in [0, 1]",
                options.p);
  return options.p;
}

}  // namespace

Dropout::Dropout(const DropoutOptions& options) : p_(checked("nn.Dropout", options)) {}

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

Dropout2d::Dropout2d(const DropoutOptions& options) : p_(checked("nn.Dropout2d", options)) {}

Variable Dropout2d::forward(const Variable& x) {
  const std::string path = scope_name().path();
  return dropout2d(x, {.p = p_,
                       .training = is_training(),
                       .layer = path.empty() ? std::string_view("Dropout2d") : path});
}

AlphaDropout::AlphaDropout(const DropoutOptions& options)
    : p_(checked("nn.AlphaDropout", options)) {}

Variable AlphaDropout::forward(const Variable& x) {
  const std::string path = scope_name().path();
  return alpha_dropout(x, {.p = p_,
                           .training = is_training(),
                           .layer = path.empty() ? std::string_view("AlphaDropout") : path});
}

}  // namespace tessera::nn
