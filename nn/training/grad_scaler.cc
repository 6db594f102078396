#include "tessera/nn/training/grad_scaler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/training/parameter_lists.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/ops.h"

namespace tessera::nn {
namespace {

constexpr const char* kWhere = "nn.GradScaler";

// The scale is a number of f32, as PyTorch's.
double rounded(double scale) { return static_cast<double>(static_cast<float>(scale)); }

void check_scale(double scale, const char* name) {
  TESSERA_CHECK(scale > 0 && std::isfinite(rounded(scale)), kWhere,
                "{} is {}; it is above 0 and a number of f32", name, scale);
}

void check_options(const GradScalerOptions& options) {
  check_scale(options.init_scale, "init_scale");
  TESSERA_CHECK(options.growth_factor > 1, kWhere, "growth_factor is {}; it is above 1",
                options.growth_factor);
  TESSERA_CHECK(options.backoff_factor > 0 && options.backoff_factor < 1, kWhere,
                "backoff_factor is {}; it is between 0 and 1", options.backoff_factor);
  TESSERA_CHECK(options.growth_interval >= 1, kWhere, "growth_interval is {}; it is at least 1",
                options.growth_interval);
}

// Asked of the parameters and not of the gradients: every rank throws, or none.
void check_dtypes(std::span<const Parameter> parameters) {
  for (const Parameter& parameter : parameters) {
    TESSERA_CHECK(parameter.dtype() != DType::kF16 || !parameter.requires_grad(), kWhere,
                  "\"{}\" is f16, in which unscaled gradients vanish; keep it in f32 and compute "
                  "under AutocastGuard(DType::kF16)",
                  parameter.name());
  }
}

// What a flag says; the ranks agree on the largest.
constexpr float kFoundInf = 1, kNarrowGradient = 2;

// Multiplies all gradients; returns kFoundInf if one of them was not finite before. Gradients of
// f16 are left unchanged and reported: only this rank may know of them, so the ranks decide to
// throw after they have exchanged it.
Tensor unscale_gradients(std::span<const Parameter> parameters, double factor) {
  Tensor finite = ones({}, {.dtype = DType::kBool, .device = device_of(parameters)});
  for (const Parameter& parameter : parameters) {
    const Tensor grad = parameter.grad();
    if (!grad.defined()) continue;
    if (grad.dtype() == DType::kF16) return full({}, kNarrowGradient, {.device = finite.device()});
    finite = logical_and(finite, all(isfinite(grad)));
    mul_(grad, factor);
  }
  return cast(logical_not(finite), DType::kF32);
}

constexpr std::array<const char*, 5> kNames = {"scale", "growth_factor", "backoff_factor",
                                               "growth_interval", "growth_tracker"};

void check_names(const StateDict& state) {
  std::vector<std::string> missing, unknown;
  for (const char* name : kNames) {
    if (!state.contains(name)) missing.push_back(name);
  }
  for (const auto& [name, value] : state) {
    if (std::find(kNames.begin(), kNames.end(), name) == kNames.end()) unknown.push_back(name);
  }
  TESSERA_CHECK(missing.empty() && unknown.empty(), kWhere,
                "this is not the state of an enabled scaler: missing [{}], unknown [{}]",
                fmt::join(missing, ", "), fmt::join(unknown, ", "));
}

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options)
    : options_(options), scale_(rounded(options.init_scale)) {
  check_options(options);
}

Variable GradScaler::scale(const Variable& loss) const {
  return options_.enabled ? mul(loss, scale_) : loss;
}

void GradScaler::unscale(optim::Optimizer& optimizer) {
  if (!options_.enabled) return;
  const auto known = iterations_.find(&optimizer);
  TESSERA_CHECK_AS(StateError, known == iterations_.end(), kWhere,
                   "unscale() {} since the last update(); call it once, between backward and step",
                   known->second.stage == Stage::kStepped ? "after step() of this optimizer"
                                                          : "was called for this optimizer");
  check_dtypes(optimizer.parameters());
  const Tensor flag = unscale_gradients(optimizer.parameters(), 1 / scale_);
  iterations_[&optimizer].flag = agreed(flag, optimizer);
}

// An axis over which no parameter is sharded takes part too: gradients are equal along it, but the
// decision then holds for all ranks, whatever made them differ.
Tensor GradScaler::agreed(const Tensor& flag, const optim::Optimizer& optimizer) const {
  std::vector<std::shared_ptr<const Mesh>> meshes = meshes_of(optimizer.parameters());
  // The common mesh last: it hands on what the others found.
  if (options_.mesh != nullptr) {
    std::erase(meshes, options_.mesh);
    meshes.push_back(options_.mesh);
  }
  for (const MeshAxis& axis : distinct_axes(meshes))
    axis.mesh->all_reduce(flag, axis.axis, MeshReduce::kMax);
  return flag;
}

bool GradScaler::found_inf(Iteration& iteration) {
  if (iteration.found) return *iteration.found;
  const float flag = iteration.flag.item<float>();
  TESSERA_CHECK(
      flag != kNarrowGradient, kWhere,
      "a gradient is f16, in which unscaled gradients vanish; let sharding hand them over "
      "in the parameters' f32: leave out keep_low_precision_gradients");
  iteration.found = flag >= kFoundInf;
  return *iteration.found;
}

bool GradScaler::step(optim::Optimizer& optimizer, const optim::StepOptions& options) {
  if (!options_.enabled) {
    optimizer.step(options);
    return true;
  }
  if (iterations_.find(&optimizer) == iterations_.end()) unscale(optimizer);
  Iteration& iteration = iterations_.at(&optimizer);
  TESSERA_CHECK_AS(StateError, iteration.stage == Stage::kUnscaled, kWhere,
                   "step() was called for this optimizer since the last update(); call update() "
                   "after each iteration");
  const bool skipped = found_inf(iteration);
  if (!skipped) optimizer.step(options);
  iteration.stage = Stage::kStepped;
  return !skipped;
}

void GradScaler::update(std::optional<double> new_scale) {
  if (!options_.enabled) return;
  if (new_scale) {
    check_scale(*new_scale, "the new scale");
    scale_ = rounded(*new_scale);
    iterations_.clear();
    return;
  }
  TESSERA_CHECK_AS(StateError, !iterations_.empty(), kWhere,
                   "update() without an optimizer since the last one; call step() first, or give "
                   "a scale");
  bool found = false;
  for (auto& [optimizer, iteration] : iterations_) found = found_inf(iteration) || found;
  iterations_.clear();
  if (found) {
    const double smaller = rounded(scale_ * options_.backoff_factor);
    if (smaller > 0) scale_ = smaller;
    growth_tracker_ = 0;
  } else if (++growth_tracker_ == options_.growth_interval) {
    const double grown = rounded(scale_ * options_.growth_factor);
    if (std::isfinite(grown)) scale_ = grown;
    growth_tracker_ = 0;
  }
}

StateDict GradScaler::state_dict() const {
  StateDict state;
  if (!options_.enabled) return state;
  state.set("scale", scale_);
  state.set("growth_factor", options_.growth_factor);
  state.set("backoff_factor", options_.backoff_factor);
  state.set("growth_interval", options_.growth_interval);
  state.set("growth_tracker", growth_tracker_);
  return state;
}

void GradScaler::load_state_dict(const StateDict& state) {
  if (!options_.enabled) return;
  check_names(state);
  GradScalerOptions options = options_;
  options.init_scale = state.number("scale");
  options.growth_factor = state.number("growth_factor");
  options.backoff_factor = state.number("backoff_factor");
  options.growth_interval = state.integer("growth_interval");
  const std::int64_t tracker = state.integer("growth_tracker");
  check_options(options);
  TESSERA_CHECK(tracker >= 0 && tracker < options.growth_interval, kWhere,
                "growth_tracker is {}; it is at least 0 and below growth_interval, {}", tracker,
                options.growth_interval);
  scale_ = rounded(options.init_scale);
  growth_tracker_ = tracker;
  options.init_scale = options_.init_scale;
  options_ = options;
  iterations_.clear();
}

}  // namespace tessera::nn
