#include "tessera/nn/layers/recurrent.h"

#include <cmath>

#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/layers/checks.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"

namespace tessera::nn::detail {
namespace {

RecurrentState lstm_step(const Variable& gates, const RecurrentState& state) {
  const std::vector<Variable> g = chunk(gates, 4, -1);
  const Variable kept = mul(sigmoid(g[1]), state.c), taken = mul(sigmoid(g[0]), tanh(g[2]));
  const Variable c = add(kept, taken);
  return {.h = mul(sigmoid(g[3]), tanh(c)), .c = c};
}

RecurrentState gru_step(const Variable& from_input, const Variable& from_hidden,
                        const RecurrentState& state) {
  const std::vector<Variable> x = chunk(from_input, 3, -1), h = chunk(from_hidden, 3, -1);
  const Variable reset = sigmoid(add(x[0], h[0])), update = sigmoid(add(x[1], h[1]));
  const Variable fresh = tanh(add(x[2], mul(reset, h[2])));
  return {.h = add(fresh, mul(update, sub(state.h, fresh))), .c = {}};
}

}  // namespace

std::int64_t gates_of(RecurrentKind kind) {
  switch (kind) {
    case RecurrentKind::kTanh:
    case RecurrentKind::kRelu:
      return 1;
    case RecurrentKind::kGru:
      return 3;
    case RecurrentKind::kLstm:
      return 4;
  }
  return 0;
}

RecurrentState recurrent_step(RecurrentKind kind, const Variable& from_input,
                              const RecurrentState& state, const RecurrentWeights& weights) {
  const Variable from_hidden = linear(state.h, weights.weight_hh, weights.bias_hh);
  switch (kind) {
    case RecurrentKind::kTanh:
      return {.h = tanh(add(from_input, from_hidden)), .c = {}};
    case RecurrentKind::kRelu:
      return {.h = relu(add(from_input, from_hidden)), .c = {}};
    case RecurrentKind::kLstm:
      return lstm_step(add(from_input, from_hidden), state);
    case RecurrentKind::kGru:
      return gru_step(from_input, from_hidden, state);
  }
  return {};
}

RecurrentParameters::RecurrentParameters(const char* where, RecurrentKind kind,
                                         const RecurrentSizes& sizes)
    : where_(where), kind_(kind), sizes_(sizes) {
  TESSERA_CHECK(sizes.input_size >= 1 && sizes.hidden_size >= 1 && sizes.num_layers >= 1, where,
                "input_size {}, hidden_size {} and num_layers {} must be at least 1",
                sizes.input_size, sizes.hidden_size, sizes.num_layers);
}

void RecurrentParameters::add(std::int64_t input, std::string suffix) {
  const std::int64_t hidden = sizes_.hidden_size, rows = gates_of(kind_) * hidden;
  const double bound = 1 / std::sqrt(static_cast<double>(hidden));
  const auto add_one = [&](const char* name, const Shape& shape) {
    all_.emplace_back(ParameterOptions{
        .shape = shape, .dtype = sizes_.dtype, .init = init::uniform(-bound, bound)});
    names_.push_back(name + suffix);
  };
  add_one("weight_ih", {rows, input});
  add_one("weight_hh", {rows, hidden});
  if (!sizes_.bias) return;
  add_one("bias_ih", {rows});
  add_one("bias_hh", {rows});
}

RecurrentWeights RecurrentParameters::weights(std::size_t set) const {
  const auto bias = [&](std::size_t which) {
    return sizes_.bias ? at(set, which).value() : Variable();
  };
  return {.weight_ih = at(set, 0).value(),
          .weight_hh = at(set, 1).value(),
          .bias_ih = bias(2),
          .bias_hh = bias(3)};
}

Parameter& RecurrentParameters::at(std::size_t set, std::size_t which) {
  TESSERA_CHECK(set < sets(), where_, "there are {} sets of parameters, not {}", sets(), set + 1);
  TESSERA_CHECK_AS(StateError, which < per_set(), where_,
                   "no bias: it was built with .bias = false");
  return all_[set * per_set() + which];
}

RecurrentState run_cell(const char* where, RecurrentKind kind,
                        const RecurrentParameters& parameters, const CellInputs& in) {
  const Parameter &ih = parameters.at(0, 0), &hh = parameters.at(0, 1);
  const Shape& shape = in.x.shape();
  const std::int64_t input = ih.shape()[1], hidden = hh.shape()[1];
  TESSERA_CHECK((shape.ndim() == 1 || shape.ndim() == 2) && shape.back() == input, where,
                "\"{}\" of shape {} expects an input [samples, {}] or [{}], got {}", ih.name(),
                ih.shape().str(), input, input, shape.str());
  check_dtype(where, ih, in.x);
  const Shape expected = shape.with(shape.ndim() - 1, hidden);
  const auto given = [&](const char* name, const Variable& state) {
    if (!state.defined())
      return Variable(zeros(expected, {.dtype = in.x.dtype(), .device = in.x.device()}));
    TESSERA_CHECK(state.shape() == expected, where, "{} has shape {}, expected {}", name,
                  state.shape().str(), expected.str());
    return state;
  };
  const RecurrentState state{
      .h = given("h", in.state.h),
      .c = kind == RecurrentKind::kLstm ? given("c", in.state.c) : Variable()};
  const RecurrentWeights weights = parameters.weights(0);
  return recurrent_step(kind, linear(in.x, weights.weight_ih, weights.bias_ih), state, weights);
}

RecurrentStack::RecurrentStack(const char* where, RecurrentKind kind, const RecurrentSizes& sizes)
    : where_(where), kind_(kind), sizes_(sizes), parameters_(where, kind, sizes) {
  TESSERA_CHECK(sizes.dropout >= 0 && sizes.dropout <= 1, where,
                "dropout is {}; it must lie in [0, 1]", sizes.dropout);
  for (std::int64_t layer = 0; layer < sizes.num_layers; ++layer) {
    const std::int64_t input =
        layer == 0 ? sizes.input_size : sizes.hidden_size * (sizes.bidirectional ? 2 : 1);
    parameters_.add(input, fmt::format("_l{}", layer));
    if (sizes.bidirectional) parameters_.add(input, fmt::format("_l{}_reverse", layer));
  }
}

Parameter& RecurrentStack::parameter(std::int64_t layer, bool reverse, std::size_t which) {
  TESSERA_CHECK(layer >= 0 && layer < sizes_.num_layers && (!reverse || sizes_.bidirectional),
                where_, "there is no layer {}{}: it has {} layers, {}", layer,
                reverse ? " in reverse" : "", sizes_.num_layers,
                sizes_.bidirectional ? "bidirectional" : "forward only");
  return parameters_.at(static_cast<std::size_t>(layer) * directions() + (reverse ? 1 : 0), which);
}

void RecurrentStack::check_input(const Variable& x) const {
  const Parameter& weight = parameters_.at(0, 0);
  TESSERA_CHECK((x.ndim() == 2 || x.ndim() == 3) && x.shape().back() == sizes_.input_size, where_,
                "\"{}\" of shape {} expects an input [{}, {}] or [length, {}], got {}",
                weight.name(), weight.shape().str(),
                sizes_.batch_first ? "samples, length" : "length, samples", sizes_.input_size,
                sizes_.input_size, x.shape().str());
  const std::int64_t length = x.dim(x.ndim() == 3 && sizes_.batch_first ? 1 : 0);
  TESSERA_CHECK(length >= 1, where_, "an input of shape {} has no steps; it needs one or more",
                x.shape().str());
  check_dtype(where_, weight, x);
}

Variable RecurrentStack::initial_state(const char* name, const Variable& state,
                                       const Variable& sequence, bool batched) const {
  const Shape shape{static_cast<std::int64_t>(parameters_.sets()), sequence.dim(1),
                    sizes_.hidden_size};
  if (!state.defined())
    return Variable(zeros(shape, {.dtype = sequence.dtype(), .device = sequence.device()}));
  const Shape expected = batched ? shape : shape.without(1);
  TESSERA_CHECK(state.shape() == expected, where_,
                "{} has shape {}, expected {}: layers times directions, {}features", name,
                state.shape().str(), expected.str(), batched ? "samples, " : "");
  return batched ? state : unsqueeze(state, 1);
}

Variable RecurrentStack::run_direction(const Variable& sequence, std::size_t set,
                                       RecurrentState& state) const {
  const RecurrentWeights weights = parameters_.weights(set);
  const std::vector<Variable> steps =
      unbind(linear(sequence, weights.weight_ih, weights.bias_ih), 0);
  const bool reverse = set % directions() == 1;
  std::vector<Variable> outputs(steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::size_t t = reverse ? steps.size() - 1 - i : i;
    state = recurrent_step(kind_, steps[t], state, weights);
    outputs[t] = state.h;
  }
  return stack(outputs, 0);
}

RecurrentStack::Result RecurrentStack::run(const Variable& x, const RecurrentState& initial,
                                           bool training, std::string_view layer) const {
  check_input(x);
  const bool batched = x.ndim() == 3, swapped = batched && sizes_.batch_first;
  Variable sequence = !batched ? unsqueeze(x, 1) : swapped ? transpose(x, 0, 1) : x;
  const Variable h0 = initial_state("the initial h", initial.h, sequence, batched);
  const bool has_cells = kind_ == RecurrentKind::kLstm;
  const Variable c0 =
      has_cells ? initial_state("the initial c", initial.c, sequence, batched) : Variable();
  std::vector<Variable> h, c;
  for (std::size_t set = 0; set < parameters_.sets(); set += directions()) {
    std::vector<Variable> outputs;
    for (std::size_t s = set; s < set + directions(); ++s) {
      const auto at = static_cast<std::int64_t>(s);
      RecurrentState state{.h = select(h0, 0, at), .c = has_cells ? select(c0, 0, at) : Variable()};
      outputs.push_back(run_direction(sequence, s, state));
      h.push_back(state.h);
      c.push_back(state.c);
    }
    sequence = outputs.size() == 1 ? outputs.front() : cat(outputs, -1);
    if (set + directions() == parameters_.sets()) continue;
    // Samples in front, where dropout counts them over all ranks.
    const DropoutOptions options{.p = sizes_.dropout, .training = training, .layer = layer};
    sequence = transpose(dropout(transpose(sequence, 0, 1), options), 0, 1);
  }
  const auto out = [&](const Variable& y) { return batched ? y : select(y, 1, 0); };
  return {.output = swapped ? transpose(sequence, 0, 1) : out(sequence),
          .state = {.h = out(stack(h, 0)), .c = has_cells ? out(stack(c, 0)) : Variable()}};
}

}  // namespace tessera::nn::detail
