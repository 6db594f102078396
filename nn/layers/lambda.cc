#include "tessera/nn/layers/lambda.h"

#include <utility>

#include "tessera/tensor/check.h"

namespace tessera::nn {

Lambda::Lambda(Function function) : function_(std::move(function)) {
  TESSERA_CHECK(function_ != nullptr, "nn.Lambda", "the function is empty");
}

}  // namespace tessera::nn
