// MultiheadAttention: values against plain loops and against PyTorch, gradients, dropout, dtypes,
// errors. Masks: attention_mask_test.cc; the cache: key_value_cache_test.cc.
#include "tessera/nn/layers/transformer/attention.h"

#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "tessera/autograd/grad_check.h"
#include "tessera/tests/nn/layers/attention_reference.h"
#include "tessera/tests/nn/layers/formulas.h"
#include "tessera/tests/nn/layers/layer_support.h"
#include "tessera/tests/nn/support.h"
#include "tessera/tests/support/parameter_grad_check.h"

namespace tessera::testing {
namespace {

using nn::AttentionForwardOptions;
using nn::MultiheadAttention;
using nn::MultiheadAttentionOptions;

double see_all(std::int64_t, std::int64_t, std::int64_t, std::int64_t) { return 0; }

// Every kind of projection; all f64.
const MultiheadAttentionOptions kKinds[] = {
    {.dim = 6, .heads = 2, .dtype = DType::kF64},
    {.dim = 8, .heads = 4, .kv_heads = 2, .dtype = DType::kF64},
    {.dim = 6, .heads = 3, .kv_heads = 1, .bias = false, .dtype = DType::kF64},
    {.dim = 4, .heads = 2, .kdim = 3, .vdim = 5, .dtype = DType::kF64},
    {.dim = 8, .heads = 4, .kv_heads = 2, .kdim = 3, .bias = false, .dtype = DType::kF64},
};

struct Inputs {
  Variable query, key, value;
};
Inputs inputs_of(const MultiheadAttentionOptions& options, std::int64_t batch, std::int64_t queries,
                 std::int64_t keys) {
  const std::int64_t kdim = options.kdim > 0 ? options.kdim : options.dim;
  const std::int64_t vdim = options.vdim > 0 ? options.vdim : options.dim;
  return {wave_input({batch, queries, options.dim}, 0.2), wave_input({batch, keys, kdim}, 0.5),
          wave_input({batch, keys, vdim}, 0.9)};
}

std::vector<std::string> names(const nn::Module& module) {
  std::vector<std::string> out;
  for (const nn::NamedParameter& named : module.named_parameters()) {
    out.push_back(named.name + named.parameter.shape().str());
  }
  return out;
}

TEST_CASE("attention is the plain loops, for every projection and length") {
  for (const MultiheadAttentionOptions& options : kKinds) {
    MultiheadAttention layer(options);
    fill_with_waves(layer);
    for (const auto& [batch, queries, keys] :
         {std::array<std::int64_t, 3>{2, 3, 5}, {1, 4, 1}, {3, 1, 4}, {0, 3, 5}, {2, 0, 3}}) {
      const Inputs in = inputs_of(options, batch, queries, keys);
      const ReferenceResult expected = attention_by_loops(
          layer, options, in.query.tensor(), in.key.tensor(), in.value.tensor(), see_all);
      const auto result = layer(in.query, in.key, in.value);
      CHECK(result.output.shape() == in.query.shape());
      CHECK_FALSE(result.weights.defined());
      check_close(values(result.output.tensor()), expected.output);
      const auto composed =
          layer(in.query, in.key, in.value,
                AttentionForwardOptions{.need_weights = true, .average_weights = false});
      CHECK(composed.weights.shape() == Shape{batch, options.heads, queries, keys});
      check_close(values(composed.output.tensor()), expected.output);
      check_close(values(composed.weights.tensor()), expected.weights);
    }
  }
}

TEST_CASE("self attention is attention of one tensor three times") {
  for (const MultiheadAttentionOptions& options : kKinds) {
    if (options.kdim > 0) continue;
    MultiheadAttention layer(options);
    fill_with_waves(layer);
    const Variable x = wave_input({2, 3, options.dim}, 0.2);
    const ReferenceResult expected =
        attention_by_loops(layer, options, x.tensor(), x.tensor(), x.tensor(), see_all);
    check_close(values(layer(x).output.tensor()), expected.output);
    check_close(values(layer(x, x, x).output.tensor()), expected.output);
    // Three variables of one value: three projections.
    check_close(values(layer(x, x.detach(), x.detach()).output.tensor()), expected.output);
  }
}

TEST_CASE("attention with the sequence first is the same, transposed") {
  for (MultiheadAttentionOptions options : kKinds) {
    MultiheadAttention batch_first(options);
    options.batch_first = false;
    MultiheadAttention sequence_first(options);
    fill_with_waves(batch_first);
    fill_with_waves(sequence_first);
    const Inputs in = inputs_of(options, 2, 3, 5);
    const auto turned = [](const Variable& x) { return contiguous(transpose(x, 0, 1)); };
    const Tensor padding = Tensor::from_vector<bool>(
        {false, true, false, false, true, true, false, false, false, false}, {2, 5});
    const AttentionForwardOptions call{.key_padding_mask = padding, .need_weights = true};
    const auto expected = batch_first(in.query, in.key, in.value, call);
    const auto got = sequence_first(turned(in.query), turned(in.key), turned(in.value), call);
    CHECK(got.output.shape() == Shape{3, 2, options.dim});
    check_close(values(turned(got.output).tensor()), values(expected.output.tensor()));
    check_close(values(got.weights.tensor()), values(expected.weights.tensor()));
    const auto fused = sequence_first(turned(in.query), turned(in.key), turned(in.value),
                                      AttentionForwardOptions{.key_padding_mask = padding});
    check_close(values(turned(fused.output).tensor()), values(expected.output.tensor()));
  }
}

TEST_CASE("grouped heads are repeated heads") {
  MultiheadAttention grouped({.dim = 8, .heads = 4, .kv_heads = 2, .dtype = DType::kF64});
  MultiheadAttention plain({.dim = 8, .heads = 4, .dtype = DType::kF64});
  fill_with_waves(grouped);
  fill_with_waves(plain);
  // Rows 8 to 11 and 12 to 15 of both: k's and v's heads, of two rows each, repeated.
  for (const char* name : {"in_proj_weight", "in_proj_bias"}) {
    const Tensor from = grouped.get_parameter(name).local().tensor();
    const Tensor to = plain.get_parameter(name).local().tensor();
    copy_(to.narrow(0, 0, 8), from.narrow(0, 0, 8));
    for (const std::int64_t part : {0, 1}) {
      for (const std::int64_t head : {0, 1, 2, 3}) {
        copy_(to.narrow(0, 8 + part * 8 + head * 2, 2),
              from.narrow(0, 8 + part * 4 + head / 2 * 2, 2));
      }
    }
  }
  for (const char* name : {"out_proj.weight", "out_proj.bias"}) {
    copy_(plain.get_parameter(name).local().tensor(), grouped.get_parameter(name).local().tensor());
  }
  const Variable x = wave_input({2, 5, 8}, 0.2);
  check_close(values(grouped(x).output.tensor()), values(plain(x).output.tensor()));
}

TEST_CASE("attention's derivatives, of inputs and of every parameter") {
  for (const MultiheadAttentionOptions& options : kKinds) {
    MultiheadAttention layer(options);
    fill_with_waves(layer);
    const Inputs in = inputs_of(options, 2, 3, 4);
    for (const bool need_weights : {false, true}) {
      if (need_weights && options.kv_heads == 0) continue;
      const AttentionForwardOptions call{.is_causal = true, .need_weights = need_weights};
      const auto function = [&](const std::vector<Variable>& x) {
        const auto result = layer(x[0], x[1], x[2], call);
        return need_weights ? sum(result.weights) * 0.5 + result.output : result.output;
      };
      const GradCheckResult checked = grad_check(function, {in.query, in.key, in.value});
      INFO(checked.message);
      CHECK(checked.passed);
      const GradCheckResult by_parameters = parameter_grad_check(layer, [&] {
        return function({in.query, in.key, in.value});
      });
      INFO(by_parameters.message);
      CHECK(by_parameters.passed);
    }
    if (options.kdim > 0) continue;
    const auto self = [&](const std::vector<Variable>& x) { return layer(x[0]).output; };
    CHECK(grad_check(self, {in.query}).passed);
    CHECK(parameter_grad_check(layer, [&] { return self({in.query}); }).passed);
  }
}

TEST_CASE("attention through its weights is differentiable twice") {
  MultiheadAttention layer({.dim = 4, .heads = 2, .dtype = DType::kF64});
  fill_with_waves(layer);
  const auto function = [&](const std::vector<Variable>& x) {
    return layer(x[0], AttentionForwardOptions{.is_causal = true, .need_weights = true}).output;
  };
  CHECK(grad_grad_check(function, {wave_input({1, 3, 4}, 0.2)}).passed);
}

TEST_CASE("attention has PyTorch's parameters") {
  using List = std::vector<std::string>;
  CHECK(names(MultiheadAttention({.dim = 6, .heads = 2})) ==
        List{"in_proj_weight[18, 6]", "in_proj_bias[18]", "out_proj.weight[6, 6]",
             "out_proj.bias[6]"});
  CHECK(names(MultiheadAttention({.dim = 8, .heads = 4, .kv_heads = 2, .bias = false})) ==
        List{"in_proj_weight[16, 8]", "out_proj.weight[8, 8]"});
  CHECK(names(MultiheadAttention({.dim = 4, .heads = 2, .kdim = 3, .vdim = 5})) ==
        List{"q_proj_weight[4, 4]", "k_proj_weight[4, 3]", "v_proj_weight[4, 5]",
             "in_proj_bias[12]", "out_proj.weight[4, 4]", "out_proj.bias[4]"});
}

TEST_CASE("attention starts as PyTorch's") {
  MultiheadAttention layer({.dim = 32, .heads = 4});
  nn::initialize(layer);
  const auto largest = [&](const char* name) {
    double out = 0;
    for (double v : values(layer.get_parameter(name).local().tensor())) {
      out = std::max(out, std::abs(v));
    }
    return out;
  };
  const double xavier = std::sqrt(6.0 / (32 + 96)), linear = 1 / std::sqrt(32.0);
  CHECK(largest("in_proj_weight") <= xavier);
  CHECK(largest("in_proj_weight") > 0.98 * xavier);
  CHECK(largest("out_proj.weight") <= linear);
  CHECK(largest("out_proj.weight") > 0.98 * linear);
  CHECK(largest("in_proj_bias") == 0);
  CHECK(largest("out_proj.bias") == 0);
}

// From torch.nn.MultiheadAttention of PyTorch 2.15 in f64: the n-th parameter is 0.3 sin(0.7 i +
// n), inputs sin(0.7 i + k), gradients of sum(y cos(0.3 i)), each summed with weights cos(0.3 i).
TEST_CASE("self attention gives PyTorch's numbers") {
  MultiheadAttention layer({.dim = 6, .heads = 2, .dtype = DType::kF64});
  fill_with_waves(layer);
  const Variable x = wave_input({2, 3, 6}, 0.2);
  AttentionForwardOptions call{
      .attn_mask = Tensor::from_vector<bool>(
          {false, true, false, false, false, true, false, false, false}, {3, 3}),
      .key_padding_mask =
          Tensor::from_vector<bool>({false, false, true, false, false, false}, {2, 3})};
  const std::vector<double> expected{
      0.291743630747402,  -0.384994974507493, -0.313247086638796, -0.024474653107891,
      -0.359950662223143, 0.027539911797568,  0.144284234658096,  -0.309650857736501,
      -0.239664227692163, -0.17196835560643,  -0.288912753710747, 0.105379407548882,
      0.219809973607722,  -0.344325188946954, -0.281191034444437, -0.096576091623924,
      -0.321309693484069, 0.061753044170765,  0.167511083298747,  -0.38684476013094,
      -0.18720078435203,  -0.146215994856581, -0.366626944116246, 0.155827492435088,
      0.148285352038394,  -0.309537570548877, -0.243776425611765, -0.168049543734895,
      -0.288643035644782, 0.101196131276247,  0.072312472755462,  -0.380151434580389,
      -0.098565124372574, -0.239818503330339, -0.363483318727914, 0.246347608179104};
  const Variable y = layer(x, call).output;
  check_close(values(y.tensor()), expected);
  backward(weigh(y));
  check_close(weighed_gradients(layer),
              {0.125448877904474, -0.446966025567558, -0.058989336314471, -0.936864098551799});
  check_close({weigh(Variable(x.grad())).item<double>()}, {0.116769646608297});
  call.need_weights = true;
  const auto composed = layer(x, call);
  check_close(values(composed.output.tensor()), expected);
  check_close(values(composed.weights.tensor()),
              {1.0, 0.0, 0.0, 0.198319215230775, 0.801680784769225, 0.0, 0.607036062827253,
               0.392963937172747, 0.0, 0.660992346576755, 0.0, 0.339007653423245, 0.193760848555511,
               0.806239151444489, 0.0, 0.281501376889442, 0.184342713137506, 0.534155909973052});
}

TEST_CASE("cross attention gives PyTorch's numbers") {
  MultiheadAttention layer(
      {.dim = 4, .heads = 2, .kdim = 3, .vdim = 5, .batch_first = false, .dtype = DType::kF64});
  fill_with_waves(layer);
  const Variable q = wave_input({2, 2, 4}, 0.2), k = wave_input({3, 2, 3}, 0.5),
                 v = wave_input({3, 2, 5}, 0.9);
  AttentionForwardOptions call{.attn_mask = waves({4, 2, 3}, 0.3), .average_weights = false};
  const Variable y = layer(q, k, v, call).output;
  check_close(values(y.tensor()),
              {-0.375800480482792, -0.164627413922195, 0.121998281555755, 0.054102609129014,
               -0.225025742605143, -0.238181024310149, 0.109831253566843, 0.150584310698356,
               -0.38905806930354, -0.149876457085885, 0.10745850822168, 0.06675105081995,
               -0.242766695088186, -0.225213180187244, 0.103135021164066, 0.150235146111862});
  backward(weigh(y));
  check_close(weighed_gradients(layer),
              {-0.016282253745605, -0.003715710133839, -0.084590297112427, 0.312776562825654,
               -0.021650489616976, -2.249074807684509});
  check_close({weigh(Variable(q.grad())).item<double>(), weigh(Variable(k.grad())).item<double>(),
               weigh(Variable(v.grad())).item<double>()},
              {0.006248053997458, -0.005996700226094, 0.025851645352578});
  call.need_weights = true;
  check_close(values(layer(q, k, v, call).weights.tensor()),
              {0.468764499366863, 0.236977370748681, 0.294258129884456, 0.574849955983994,
               0.218817395590725, 0.20633264842528,  0.249674417095708, 0.380314048417551,
               0.370011534486741, 0.20094015187507,  0.455257199881749, 0.343802648243181,
               0.43433760387104,  0.220378864633099, 0.345283531495861, 0.326292556237158,
               0.244076903252846, 0.429630540509996, 0.325266508389745, 0.382886293953164,
               0.291847197657091, 0.422961151584979, 0.379871299888777, 0.197167548526244});
}

TEST_CASE("attention without a batch, as PyTorch's") {
  for (bool batch_first : {false, true}) {
    MultiheadAttention layer(
        {.dim = 6, .heads = 2, .batch_first = batch_first, .dtype = DType::kF64});
    fill_with_waves(layer);
    const Variable q = wave_input({3, 6}, 0.2), k = wave_input({4, 6}, 0.9);
    const nn::MultiheadAttentionResult y =
        layer(q, k, k,
              AttentionForwardOptions{
                  .attn_mask = waves({2, 3, 4}, 0.3),
                  .key_padding_mask = Tensor::from_vector<bool>({false, true, false, false}, {4}),
                  .need_weights = true});
    CHECK(y.output.shape() == Shape{3, 6});
    CHECK(y.weights.shape() == Shape{3, 4});
    backward(weigh(y.output));
    check_close(
        {weigh(y.output).item<double>(), weigh(y.weights).item<double>(),
         weigh(Variable(q.grad())).item<double>(), weigh(layer(q).output).item<double>()},
        {0.3199036426655354, -0.23800274497244261, 0.04528664806519775, 0.42563309848390984});
  }
}

}  // namespace
}  // namespace tessera::testing
