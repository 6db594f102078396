#include "tessera/nn/layers/sequential.h"

#include "tessera/tensor/check.h"

namespace tessera::nn {

Variable Sequential::forward(const Variable& x) {
  Variable out = x;
  for (const Step& step : steps_) out = step.call(out);
  return out;
}

Module& Sequential::at(int index) {
  TESSERA_CHECK(index >= 0 && index < size(), kWhere, "index {} of {} layers", index, size());
  return *steps_[static_cast<std::size_t>(index)].layer;
}

void Sequential::push(Step step) {
  TESSERA_CHECK(step.layer != nullptr, kWhere, "layer {} is null", size());
  register_module(std::to_string(size()), *step.layer);
  steps_.push_back(std::move(step));
}

}  // namespace tessera::nn
