#include "tessera/tests/models/token_model_checks.h"

#include <fmt/format.h>

#include <cmath>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/init.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/random.h"

namespace tessera::testing {

std::vector<std::int64_t> some_tokens(std::int64_t count, std::int64_t vocab) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back((i * i + i / 3 + 1) % vocab);
  return out;
}

Variable token_input(std::int64_t batch, std::int64_t length, std::int64_t vocab) {
  return Variable(Tensor::from_vector(some_tokens(batch * length, vocab), {batch, length}));
}

void randomize(nn::Module& model, double deviation) {
  for (nn::Parameter& parameter : model.parameters())
    parameter.set_init(nn::init::normal(0.1, deviation));
  nn::initialize(model, {.seed = 3});
}

std::int64_t count_elements(const nn::Module& model) {
  std::int64_t count = 0;
  for (const nn::Parameter& parameter : model.parameters()) count += parameter.shape().numel();
  return count;
}

std::vector<std::string> parameter_names(const nn::Module& model) {
  std::vector<std::string> out;
  for (const auto& [name, parameter] : model.named_parameters()) out.push_back(name);
  return out;
}

Statistics statistics_of(nn::Module& model, const std::string& parameter) {
  Statistics result;
  double squares = 0;
  const Tensor values = cast(model.get_parameter(parameter).local().tensor(), DType::kF64);
  const auto n = static_cast<double>(values.numel());
  for (const double value : values.to_vector<double>()) {
    result.mean += value / n;
    squares += value * value / n;
  }
  result.deviation = std::sqrt(squares - result.mean * result.mean);
  return result;
}

CloseResult equals_plain(const models::LanguageModel& model, const PlainModel& plain,
                         std::int64_t batch, std::int64_t length) {
  std::vector<double> expected;
  const std::vector<std::int64_t> tokens = some_tokens(batch * length, model.vocab_size);
  for (std::int64_t sample = 0; sample < batch; ++sample) {
    for (const Row& row : plain(&tokens[static_cast<std::size_t>(sample * length)],
                                static_cast<std::size_t>(length)))
      expected.insert(expected.end(), row.begin(), row.end());
  }
  const Tensor logits =
      model.forward(token_input(batch, length, model.vocab_size).tensor(), {}).logits.tensor();
  return all_close(logits, Tensor::from_vector(expected, {batch, length, model.vocab_size}),
                   {.rtol = 1e-12, .atol = 1e-12});
}

CloseResult is_causal(const models::LanguageModel& model) {
  const std::int64_t length = model.max_length, changed = length / 2;
  const Tensor tokens = token_input(1, length, model.vocab_size).tensor();
  const Tensor before = model.forward(tokens, {}).logits.tensor();
  const auto old = tokens.select(1, changed).item<std::int64_t>();
  fill_(tokens.select(1, changed), static_cast<double>((old + 1) % model.vocab_size));
  const Tensor after = model.forward(tokens, {}).logits.tensor();
  if (all_equal(before.select(1, changed), after.select(1, changed)))
    return {.ok = false, .message = "its own logits do not depend on a token"};
  if (all_equal(before.select(1, length - 1), after.select(1, length - 1)))
    return {.ok = false, .message = "later logits do not depend on a token"};
  return all_equal(before.slice(1, 0, changed), after.slice(1, 0, changed));
}

CloseResult decodes_like_one_call(const models::LanguageModel& model,
                                  const std::vector<std::int64_t>& lengths) {
  const NoGradGuard no_grad;
  const std::int64_t batch = 3;
  const Tensor tokens = token_input(batch, model.max_length, model.vocab_size).tensor();
  const Tensor expected = model.forward(tokens, {}).logits.tensor();
  models::DecodeCache cache(model.cached_layers, 1);
  std::int64_t begin = 0;
  for (const std::int64_t length : lengths) {
    const Tensor logits =
        model.forward(tokens.slice(1, begin, begin + length), {.cache = &cache}).logits.tensor();
    const CloseResult result =
        all_close(logits, expected.slice(1, begin, begin + length), {.rtol = 1e-12, .atol = 1e-12});
    if (!result) return {.ok = false, .message = fmt::format("from {}: {}", begin, result.message)};
    begin += length;
    if (cache.length() != begin)
      return {.ok = false, .message = fmt::format("the cache holds {}", cache.length())};
  }
  if (begin != model.max_length)
    return {.ok = false, .message = fmt::format("{} of {} positions", begin, model.max_length)};
  return {};
}

namespace {

// Runs forward and backward with gradients for x and the block's parameters. Returns the result and
// all gradients.
std::vector<Tensor> trained(const nn::Module& block, const BlockCase& c,
                            const BlockFunction& function) {
  std::vector<Variable> inputs, leaves;
  for (const Shape& shape : c.inputs) {
    const Tensor x = Tensor::empty(shape, {.dtype = DType::kF64});
    random::fill_normal(x, random::named_key(inputs.size(), "input"), random::whole(shape), 0, 1);
    inputs.push_back(Variable(x, true));
  }
  leaves = inputs;
  for (const nn::Parameter& parameter : block.parameters()) leaves.push_back(parameter.value());
  const Variable y = function(inputs), loss = sum(mul(y, sin(y)));
  std::vector<Tensor> out = {y.tensor()};
  for (const Variable& gradient : grad({&loss, 1}, leaves))
    if (gradient.defined()) out.push_back(gradient.tensor());
  return out;
}

}  // namespace

CloseResult equals_formula(nn::Module& block, const BlockCase& c) {
  std::vector<int> arguments(c.adding_norms.size());
  std::vector<HookHandle> hooks;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    hooks.push_back(block.get_submodule(c.adding_norms[i])
                        .register_forward_pre_hook(
                            [&count = arguments[i]](nn::Module&, const nn::VisitVariables& visit) {
                              visit([&count](Variable&) { ++count; });
                            }));
  }
  const std::vector<Tensor> got = trained(block, c, c.call);
  for (HookHandle& hook : hooks) hook.remove();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] != 2)
      return {.ok = false,
              .message = fmt::format("{} saw {} Variables", c.adding_norms[i], arguments[i])};
  }
  const std::vector<Tensor> expected = trained(block, c, c.formula);
  if (got.size() != expected.size()) return {.ok = false, .message = "other gradients"};
  for (std::size_t i = 0; i < got.size(); ++i) {
    const CloseResult equal = all_equal(got[i], expected[i]);
    if (!equal) return {.ok = false, .message = fmt::format("tensor {}: {}", i, equal.message)};
  }
  return {};
}

}  // namespace tessera::testing
