#include "tessera/nn/optim/lbfgs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tessera/nn/optim/element_update.h"
#include "tessera/nn/optim/line_search.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/matmul.h"
#include "tessera/tensor/ops/reduce.h"
#include "tessera/tensor/ops/shape.h"

namespace tessera::nn::optim {
namespace {

constexpr const char* kWhere = "nn.optim.LBFGS";

double number(const Tensor& x) { return cast(x, DType::kF64).item<double>(); }
double largest(const Tensor& x) { return x.numel() == 0 ? 0 : number(amax(abs(x))); }
double product(const Tensor& a, const Tensor& b) { return number(dot(a, b)); }

double number_of(const Variable& loss) {
  TESSERA_CHECK(loss.defined() && loss.numel() == 1, kWhere,
                "the function returned {}; it returns a loss of one element",
                loss.defined() ? "a shape of " + loss.shape().str() : "nothing");
  return number(loss.tensor());
}

std::int64_t most_evaluations(const LBFGSOptions& options) {
  return options.max_eval > 0 ? options.max_eval : options.max_iter * 5 / 4;
}

}  // namespace

// Where a step stands.
struct LBFGS::Iteration {
  double loss = 0;
  Tensor gradient;
  std::int64_t count = 0;        // of iterations
  std::int64_t evaluations = 0;  // of the function
};

LBFGS::LBFGS(const std::vector<Parameter>& parameters, const LBFGSOptions& options) {
  add_groups({{.parameters = parameters, .options = options}});
}

void LBFGS::check_options(const LBFGSOptions& options) const {
  check_at_least_0(kWhere, "lr", options.lr);
  check_at_least_0(kWhere, "tolerance_grad", options.tolerance_grad);
  check_at_least_0(kWhere, "tolerance_change", options.tolerance_change);
  TESSERA_CHECK(options.max_iter >= 1 && options.history_size >= 1 && options.max_eval >= 0, kWhere,
                "max_iter {} and history_size {} must be at least 1, max_eval {} at least 0",
                options.max_iter, options.history_size, options.max_eval);
}

OptionList LBFGS::list_options(LBFGSOptions& options) const {
  return {{"lr", &options.lr},
          {"max_iter", &options.max_iter},
          {"max_eval", &options.max_eval},
          {"tolerance_grad", &options.tolerance_grad},
          {"tolerance_change", &options.tolerance_change},
          {"history_size", &options.history_size},
          {"strong_wolfe", &options.strong_wolfe}};
}

std::vector<std::string> LBFGS::state_names(const LBFGSOptions& /*options*/) const { return {}; }

void LBFGS::update(const std::vector<Parameter>& /*parameters*/) {
  throw_error<StateError>(kWhere,
                          "a step needs the function that computes the loss and its gradients: "
                          "call step(function)");
}

Tensor LBFGS::flat_gradient() const {
  std::vector<Tensor> parts;
  for (const Parameter& parameter : parameters()) {
    const Tensor& local = parameter.local().tensor();
    const Tensor grad = parameter.requires_grad() ? parameter.grad() : Tensor();
    const DType dtype = compute_dtype(parameters().front().dtype());
    const Tensor part = grad.defined()
                            ? cast(grad, dtype)
                            : zeros(local.shape(), {.dtype = dtype, .device = local.device()});
    parts.push_back(part.view({part.numel()}));
  }
  return cat(parts);
}

void LBFGS::move(const Tensor& direction, double length) const {
  std::int64_t first = 0;
  for (const Parameter& parameter : parameters()) {
    const Tensor& local = parameter.local().tensor();
    descend(parameter, direction.narrow(0, first, local.numel()).view(local.shape()), -length);
    first += local.numel();
  }
}

// The last step, if the curvature along it is positive.
void LBFGS::remember(const Tensor& gradient) {
  const Tensor gradient_change = sub(gradient, last_gradient_),
               change = mul(last_direction_, last_length_);
  const double curvature = product(gradient_change, change);
  if (curvature <= 1e-10) return;
  if (static_cast<std::int64_t>(history_.size()) >= options().history_size)
    history_.erase(history_.begin());
  history_.push_back({change, gradient_change, 1 / curvature});
  scale_ = curvature / product(gradient_change, gradient_change);
}

// Minus the approximate inverse Hessian times the gradient, by two loops over the history.
Tensor LBFGS::direction(const Tensor& gradient) const {
  const Tensor q = neg(gradient);
  std::vector<double> alpha(history_.size());
  for (std::size_t i = history_.size(); i-- > 0;) {
    const Pair& pair = history_[i];
    alpha[i] = product(pair.change, q) * pair.inverse_product;
    axpby_(q, pair.gradient_change, {.alpha = -alpha[i], .beta = 1});
  }
  mul_(q, scale_);
  for (std::size_t i = 0; i < history_.size(); ++i) {
    const Pair& pair = history_[i];
    const double beta = product(pair.gradient_change, q) * pair.inverse_product;
    axpby_(q, pair.change, {.alpha = alpha[i] - beta, .beta = 1});
  }
  return q;
}

void LBFGS::search(const Closure& closure, Iteration& now, double slope) {
  const Tensor& along = last_direction_;
  std::vector<Tensor> before;
  for (const Parameter& parameter : parameters())
    before.push_back(clone(parameter.local().tensor()));
  const auto return_to_start = [&] {
    for (std::size_t i = 0; i < before.size(); ++i)
      copy_(parameters()[i].local().tensor(), before[i]);
  };
  const auto evaluate = [&](double t) {
    move(along, t);
    const double loss = number_of(closure());
    const Tensor gradient = flat_gradient();
    return_to_start();
    return LinePoint{.t = t, .loss = loss, .gradient = gradient, .slope = product(gradient, along)};
  };
  const LinePoint start{.t = 0, .loss = now.loss, .gradient = now.gradient, .slope = slope};
  const LineSearchResult found =
      strong_wolfe(start, evaluate,
                   {.first = last_length_,
                    .iterations = most_evaluations(options()) - now.evaluations,
                    .largest_change = largest(along)});
  last_length_ = found.point.t;
  move(along, last_length_);
  now.loss = found.point.loss;
  now.gradient = found.point.gradient;
  now.evaluations += found.evaluations;
}

// False where the step ends.
bool LBFGS::iterate(const Closure& closure, Iteration& now) {
  const LBFGSOptions& settings = options();
  ++now.count;
  const bool is_first = ++iterations_ == 1;
  if (!is_first) remember(now.gradient);
  last_direction_ = direction(now.gradient);
  last_gradient_ = now.gradient;
  const double before = now.loss;
  last_length_ =
      is_first ? std::min(1.0, 1 / number(sum(abs(now.gradient)))) * settings.lr : settings.lr;
  const double slope = product(now.gradient, last_direction_);
  if (slope > -settings.tolerance_change) return false;
  if (settings.strong_wolfe) {
    search(closure, now, slope);
  } else {
    move(last_direction_, last_length_);
    if (now.count == settings.max_iter) return false;
    now.loss = number_of(closure());
    now.gradient = flat_gradient();
    ++now.evaluations;
  }
  return now.count < settings.max_iter && now.evaluations < most_evaluations(settings) &&
         largest(now.gradient) > settings.tolerance_grad &&
         largest(last_direction_) * last_length_ > settings.tolerance_change &&
         !(std::abs(now.loss - before) < settings.tolerance_change);
}

Variable LBFGS::step(const Closure& closure) {
  TESSERA_CHECK_AS(StateError, group_count() == 1, kWhere,
                   "the parameters are in {} groups; it takes one", group_count());
  for (const Parameter& parameter : parameters()) check_whole(kWhere, parameter);
  const Variable first = closure();
  Iteration now{
      .loss = number_of(first), .gradient = flat_gradient(), .count = 0, .evaluations = 1};
  if (largest(now.gradient) <= options().tolerance_grad) return first;
  while (iterate(closure, now)) {
  }
  return first;
}

}  // namespace tessera::nn::optim
