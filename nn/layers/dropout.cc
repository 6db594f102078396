#include "tessera/nn/layers/dropout.h"

#include <string>

#include "tessera/autograd/ops.h"
#include "tessera/tensor/check.h"

namespace tessera::nn {

Dropout::Dropout(const DropoutOptions& options) : p_(options.p) {
  TESSERA_CHECK(p_ >= 0 && p_ <= 1, "nn.Dropout", "p is {}; it must lie in [0, 1]", p_);
}

Variable Dropout::forward(const Variable& x) {
  if (!is_training() || p_ == 0) return x;
  const std::string path = scope_name().path();
  return dropout(
      x, {.p = p_, .layer = path.empty() ? std::string_view("Dropout") : std::string_view(path)});
}

}  // namespace tessera::nn
