#pragma once

/// A module with arbitrary parameters.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/parameter.h"

namespace tessera::testing {

/// Parameters "p0", "p1", ... forward(x), x [1] of their dtype: x times the sum of all elements, so
/// the gradient of every element is x.
class Holder final : public nn::Layer<Holder> {
 public:
  explicit Holder(std::vector<nn::ParameterOptions> options) {
    for (nn::ParameterOptions& o : options) {
      parameters_.push_back(std::make_unique<nn::Parameter>(std::move(o)));
      register_parameter("p" + std::to_string(parameters_.size() - 1), *parameters_.back());
    }
  }
  Variable forward(const Variable& x) {
    if (inside) inside();
    Variable total;
    for (const auto& parameter : parameters_) {
      const Variable term = sum(parameter->value());
      total = total.defined() ? add(total, term) : term;
    }
    return sum(mul(x, total));
  }
  nn::Parameter& at(std::size_t i) { return *parameters_[i]; }
  std::size_t size() const { return parameters_.size(); }

  std::function<void()> inside;  ///< called by forward if set

 private:
  std::vector<std::unique_ptr<nn::Parameter>> parameters_;
};

/// Parameters of one dtype, initialised to zeros.
inline std::vector<nn::ParameterOptions> zeros_of(const std::vector<Shape>& shapes,
                                                  DType dtype = DType::kF32) {
  std::vector<nn::ParameterOptions> out;
  for (const Shape& shape : shapes)
    out.push_back({.shape = shape, .dtype = dtype, .init = nn::init::zeros()});
  return out;
}

}  // namespace tessera::testing
