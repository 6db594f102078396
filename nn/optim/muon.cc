#include "tessera/nn/optim/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/matmul.h"
#include "tessera/tensor/ops/reduce.h"

namespace tessera::nn::optim {
namespace {

// The axes that hold different rows, outermost first.
std::vector<std::string> sharded_axes(const Parameter& parameter) {
  const std::vector<std::string>& names = parameter.spec().sharded_axes;
  std::vector<std::string> out;
  for (const std::string& axis : parameter.mesh()->axes()) {
    if (std::find(names.begin(), names.end(), axis) != names.end()) out.push_back(axis);
  }
  return out;
}

// What gathered chunks would put elsewhere than the spec says.
void check_is_chunk(const Parameter& parameter, const std::vector<std::string>& axes,
                    std::int64_t chunk) {
  const ShardSpec& spec = parameter.spec();
  const Shape& global = spec.global_shape;
  std::int64_t place = 0, chunks = 1;
  for (const std::string& axis : axes) {
    place = place * parameter.mesh()->size(axis) + parameter.mesh()->rank(axis);
    chunks *= parameter.mesh()->size(axis);
  }
  bool fits = spec.boxes.size() == 1 && chunk * chunks >= global[0];
  if (fits) {
    const ShardBox& box = spec.boxes.front();
    fits = box.extent == global.with(0, box.extent[0]) &&
           box.extent[0] == std::clamp<std::int64_t>(global[0] - place * chunk, 0, chunk) &&
           (box.extent[0] == 0 || box.offset[0] == place * chunk);
  }
  TESSERA_CHECK(fits, "nn.optim",
                "\"{}\" of shape {} is not sharded in chunks of {} rows in rank order, of which "
                "this rank's would be number {}: shard it over dim 0, or leave it to an optimizer "
                "that works element by element",
                parameter.name(), global.str(), chunk, place);
}

}  // namespace

Tensor gather_rows(const Parameter& parameter, const Tensor& rows) {
  if (parameter.spec().is_whole()) return rows;
  const std::vector<std::string> axes = sharded_axes(parameter);
  const std::int64_t chunk = parameter.padded_local().dim(0);
  check_is_chunk(parameter, axes, chunk);
  Tensor out = zeros(rows.shape().with(0, chunk), rows.options());
  copy_(out.slice(0, 0, rows.dim(0)), rows);
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    out = parameter.mesh()->all_gather(out, *axis);
  }
  return out.slice(0, 0, parameter.spec().global_shape[0]);
}

Tensor own_rows(const Parameter& parameter, const Tensor& whole) {
  if (parameter.spec().is_whole()) return whole;
  const ShardBox& box = parameter.spec().boxes.front();
  return whole.narrow(0, box.extent[0] == 0 ? 0 : box.offset[0], box.extent[0]);
}

namespace {

constexpr const char* kWhere = "nn.optim.Muon";
constexpr const char* kMomentum = "momentum";

double scale_of(const Shape& global, const MuonOptions& options) {
  const auto rows = static_cast<double>(global[0]), columns = static_cast<double>(global[1]);
  if (options.match_rms_adamw) return 0.2 * std::sqrt(std::max(rows, columns));
  return std::sqrt(std::max(1.0, rows / columns));
}

}  // namespace

Tensor newton_schulz(const Tensor& matrix, const NewtonSchulzOptions& options) {
  TESSERA_CHECK(matrix.ndim() == 2, "nn.optim.newton_schulz",
                "needs a matrix, got a tensor of shape {}", matrix.shape().str());
  if (matrix.numel() == 0) return matrix;
  const auto [a, b, c] = options.coefficients;
  const bool tall = matrix.dim(0) > matrix.dim(1);
  Tensor x = tall ? matrix.transpose(0, 1) : matrix;
  x = div(x, maximum(norm(x), options.eps));
  for (std::int64_t step = 0; step < options.steps; ++step) {
    const Tensor gram = matmul(x, x.transpose(0, 1));
    const Tensor change = addmm(gram, gram, gram, {.alpha = c, .beta = b});
    x = addmm(x, change, x, {.alpha = 1, .beta = a});
  }
  return tall ? x.transpose(0, 1) : x;
}

Muon::Muon(const std::vector<Parameter>& parameters, const MuonOptions& options)
    : Muon(std::vector<Group>{{.parameters = parameters, .options = options}}) {}

Muon::Muon(std::vector<Group> groups) { add_groups(std::move(groups)); }

void Muon::check_options(const MuonOptions& options) const {
  TESSERA_CHECK(options.lr >= 0, kWhere, "lr is {}; give one that is at least 0", options.lr);
  TESSERA_CHECK(options.weight_decay >= 0, kWhere, "weight_decay is {}; it is at least 0",
                options.weight_decay);
  TESSERA_CHECK(options.momentum >= 0 && options.momentum <= 1, kWhere,
                "momentum is {}; it lies in [0, 1]", options.momentum);
  TESSERA_CHECK(options.newton_schulz.steps >= 0, kWhere,
                "newton_schulz.steps is {}; it is at least 0", options.newton_schulz.steps);
  TESSERA_CHECK(options.newton_schulz.eps > 0, kWhere, "newton_schulz.eps is {}; it is above 0",
                options.newton_schulz.eps);
}

void Muon::check_parameter(const Parameter& parameter) const {
  const Shape& shape = parameter.spec().global_shape;
  TESSERA_CHECK(
      shape.ndim() == 2, kWhere,
      "\"{}\" of shape {} is not a matrix: put it into an AdamW beside this optimizer, as "
      "group_parameters(model, min_dims(2)) splits them",
      parameter.name(), shape.str());
}

OptionList Muon::list_options(MuonOptions& options) const {
  NewtonSchulzOptions& iteration = options.newton_schulz;
  return {{"lr", &options.lr},
          {"weight_decay", &options.weight_decay},
          {"momentum", &options.momentum},
          {"nesterov", &options.nesterov},
          {"newton_schulz_a", &iteration.coefficients[0]},
          {"newton_schulz_b", &iteration.coefficients[1]},
          {"newton_schulz_c", &iteration.coefficients[2]},
          {"newton_schulz_steps", &iteration.steps},
          {"newton_schulz_eps", &iteration.eps},
          {"match_rms_adamw", &options.match_rms_adamw}};
}

std::vector<std::string> Muon::state_names(const MuonOptions& /*options*/) const {
  return {kMomentum};
}

void Muon::update(const std::vector<Parameter>& parameters) {
  for (const Parameter& parameter : parameters) update_matrix(parameter);
}

void Muon::update_matrix(const Parameter& parameter) {
  const MuonOptions& options = options_for(parameter);
  const auto [momentum, is_new] = state_for_update(parameter, kMomentum);
  if (is_new) zero_(momentum);
  const Tensor gradient = cast(parameter.grad(), momentum.dtype());
  lerp_(momentum, gradient, 1 - options.momentum);
  const Tensor direction = options.nesterov ? lerp(gradient, momentum, options.momentum) : momentum;
  const Tensor orthogonal = newton_schulz(gather_rows(parameter, direction), options.newton_schulz);
  axpby_(parameter.local().tensor(), own_rows(parameter, orthogonal),
         {.alpha = -options.lr * scale_of(parameter.spec().global_shape, options),
          .beta = 1 - options.lr * options.weight_decay});
}

}  // namespace tessera::nn::optim
