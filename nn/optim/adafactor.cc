#include "tessera/nn/optim/adafactor.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tessera/nn/optim/element_update.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/matmul.h"
#include "tessera/tensor/ops/reduce.h"

namespace tessera::nn::optim {
namespace {

constexpr const char* kWhere = "nn.optim.Adafactor";
constexpr const char* kRows = "row_var";
constexpr const char* kColumns = "col_var";
constexpr const char* kVariance = "variance";

// From 1 to the next number.
double epsilon_of(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 0x1p-52;
    case DType::kBF16:
      return 0x1p-7;
    case DType::kF16:
      return 0x1p-10;
    default:
      return 0x1p-23;
  }
}

// The mean of squares over a dim, which stays.
Tensor mean_square(const Tensor& x, int dim) {
  return div(square(norm(x, {dim}, {.keep_dims = true})), x.dim(dim));
}

Tensor root_mean_square(const Tensor& x) {
  return div(norm(x), std::sqrt(static_cast<double>(x.numel())));
}

}  // namespace

Adafactor::Adafactor(const std::vector<Parameter>& parameters, const AdafactorOptions& options)
    : Adafactor(std::vector<Group>{{.parameters = parameters, .options = options}}) {}

Adafactor::Adafactor(std::vector<Group> groups) { add_groups(std::move(groups)); }

void Adafactor::check_options(const AdafactorOptions& options) const {
  check_at_least_0(kWhere, "lr", options.lr);
  check_at_least_0(kWhere, "eps2", options.eps2);
  check_at_least_0(kWhere, "weight_decay", options.weight_decay);
  TESSERA_CHECK(options.beta2_decay <= 0, kWhere, "beta2_decay is {}; it must not be above 0",
                options.beta2_decay);
  TESSERA_CHECK(options.d >= 1, kWhere, "d is {}; it must be at least 1", options.d);
}

OptionList Adafactor::list_options(AdafactorOptions& options) const {
  return {{"lr", &options.lr},
          {"beta2_decay", &options.beta2_decay},
          {"eps1", &options.eps1},
          {"eps2", &options.eps2},
          {"d", &options.d},
          {"weight_decay", &options.weight_decay},
          {"maximize", &options.maximize}};
}

std::vector<std::string> Adafactor::state_names(const AdafactorOptions& /*options*/) const {
  return {kRows, kColumns, kVariance};
}

std::optional<Shape> Adafactor::state_shape(const Parameter& parameter,
                                            const std::string& name) const {
  const Shape& shape = parameter.local().shape();
  const bool is_matrix = shape.ndim() >= 2;
  if (is_matrix == (name == kVariance)) return std::nullopt;
  if (!is_matrix) return shape;
  return shape.with(shape.ndim() - (name == kRows ? 1 : 2), 1);
}

void Adafactor::update(const std::vector<Parameter>& parameters) {
  for (const Parameter& parameter : parameters) check_whole(kWhere, parameter);
  for (const Parameter& parameter : parameters) {
    if (parameter.local().numel() > 0) update_one(parameter);
  }
}

Tensor Adafactor::updated_variance(const Parameter& parameter, const Tensor& g, double eps1) {
  const double weight =
      std::pow(static_cast<double>(steps(parameter) + 1), options_for(parameter).beta2_decay);
  const auto average = [&](const char* name, const Tensor& now) {
    const auto [tensor, is_new] = state_for_update(parameter, name);
    if (is_new) zero_(tensor);
    lerp_(tensor, now, weight);
    return tensor;
  };
  if (g.ndim() < 2) return average(kVariance, square(g));
  const Tensor rows = average(kRows, mean_square(g, -1)),
               columns = average(kColumns, mean_square(g, -2));
  return div(matmul(rows, columns), maximum(mean(rows, {-2}, true), eps1));
}

void Adafactor::update_one(const Parameter& parameter) {
  const AdafactorOptions& options = options_for(parameter);
  const Tensor& p = parameter.local().tensor();
  const double eps1 = options.eps1 < 0 ? epsilon_of(p.dtype()) : options.eps1;
  const double t = static_cast<double>(steps(parameter) + 1);
  const Tensor g = descent_gradient(parameter, options.maximize, 0);
  const Tensor variance = updated_variance(parameter, g, eps1);
  const Tensor direction = mul(rsqrt(maximum(variance, eps1 * eps1)), g);
  const Tensor wide = p.dtype() == g.dtype() ? p : cast(p, g.dtype());
  const Tensor size =
      mul(maximum(root_mean_square(wide), options.eps2), std::min(options.lr, 1 / std::sqrt(t)));
  const Tensor excess = maximum(div(root_mean_square(direction), options.d), 1.0);
  descend(parameter, mul(direction, div(size, excess)), 1, options.lr * options.weight_decay);
}

}  // namespace tessera::nn::optim
