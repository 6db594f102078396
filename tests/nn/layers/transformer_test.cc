// Transformer layers and stacks: structure and initial values, gradients, activations, dropout,
// both orders of dims, errors.
#include "tessera/nn/layers/transformer/transformer.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "tessera/autograd/grad_check.h"
#include "tessera/autograd/ops/autocast.h"
#include "tessera/tensor/random_scope.h"
#include "tessera/tests/nn/layers/formulas.h"
#include "tessera/tests/nn/layers/layer_support.h"
#include "tessera/tests/nn/layers/transformers.h"
#include "tessera/tests/nn/support.h"
#include "tessera/tests/support/parameter_grad_check.h"

namespace tessera::testing {
namespace {

using nn::TransformerDecoderMasks;
using nn::TransformerLayerOptions;
using nn::TransformerMask;
using nn::TransformerMasks;

std::vector<std::string> parameter_names(const nn::Module& module) {
  std::vector<std::string> out;
  for (const nn::NamedParameter& named : module.named_parameters()) out.push_back(named.name);
  return out;
}

// Of an encoder-decoder of one and two layers.
const std::vector<std::string> kModules{"",
                                        "encoder",
                                        "encoder.layers",
                                        "encoder.layers.0",
                                        "encoder.layers.0.self_attn",
                                        "encoder.layers.0.self_attn.out_proj",
                                        "encoder.layers.0.linear1",
                                        "encoder.layers.0.dropout",
                                        "encoder.layers.0.linear2",
                                        "encoder.layers.0.norm1",
                                        "encoder.layers.0.norm2",
                                        "encoder.layers.0.dropout1",
                                        "encoder.layers.0.dropout2",
                                        "encoder.norm",
                                        "decoder",
                                        "decoder.layers",
                                        "decoder.layers.0",
                                        "decoder.layers.0.self_attn",
                                        "decoder.layers.0.self_attn.out_proj",
                                        "decoder.layers.0.multihead_attn",
                                        "decoder.layers.0.multihead_attn.out_proj",
                                        "decoder.layers.0.linear1",
                                        "decoder.layers.0.dropout",
                                        "decoder.layers.0.linear2",
                                        "decoder.layers.0.norm1",
                                        "decoder.layers.0.norm2",
                                        "decoder.layers.0.norm3",
                                        "decoder.layers.0.dropout1",
                                        "decoder.layers.0.dropout2",
                                        "decoder.layers.0.dropout3",
                                        "decoder.layers.1",
                                        "decoder.layers.1.self_attn",
                                        "decoder.layers.1.self_attn.out_proj",
                                        "decoder.layers.1.multihead_attn",
                                        "decoder.layers.1.multihead_attn.out_proj",
                                        "decoder.layers.1.linear1",
                                        "decoder.layers.1.dropout",
                                        "decoder.layers.1.linear2",
                                        "decoder.layers.1.norm1",
                                        "decoder.layers.1.norm2",
                                        "decoder.layers.1.norm3",
                                        "decoder.layers.1.dropout1",
                                        "decoder.layers.1.dropout2",
                                        "decoder.layers.1.dropout3",
                                        "decoder.norm"};

TEST_CASE("transformers have PyTorch's children and parameters, in its order") {
  nn::Transformer model({.layer = small(false), .encoder_layers = 1, .decoder_layers = 2});
  std::vector<std::string> modules;
  for (const nn::NamedModule& named : model.named_modules()) modules.push_back(named.name);
  CHECK(modules == kModules);
  CHECK(parameter_names(nn::TransformerDecoderLayer(small(false))) ==
        std::vector<std::string>{"self_attn.in_proj_weight", "self_attn.in_proj_bias",
                                 "self_attn.out_proj.weight", "self_attn.out_proj.bias",
                                 "multihead_attn.in_proj_weight", "multihead_attn.in_proj_bias",
                                 "multihead_attn.out_proj.weight", "multihead_attn.out_proj.bias",
                                 "linear1.weight", "linear1.bias", "linear2.weight", "linear2.bias",
                                 "norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias",
                                 "norm3.weight", "norm3.bias"});
  TransformerLayerOptions plain = small(false);
  plain.bias = false;
  CHECK(parameter_names(nn::TransformerEncoderLayer(plain)) ==
        std::vector<std::string>{"self_attn.in_proj_weight", "self_attn.out_proj.weight",
                                 "linear1.weight", "linear2.weight", "norm1.weight",
                                 "norm2.weight"});
  nn::TransformerEncoder without_norm({.layer = small(false), .num_layers = 1});
  CHECK(without_norm.children().size() == 1);
}

double largest(nn::Module& model, const std::string& name) {
  double out = 0;
  for (double v : values(model.get_parameter(name).local().tensor())) {
    out = std::max(out, std::abs(v));
  }
  return out;
}

TEST_CASE("a transformer starts its matrices by xavier, a single layer as its parts do") {
  const TransformerLayerOptions options{.dim = 32, .heads = 4, .feedforward = 64};
  nn::Transformer model({.layer = options, .encoder_layers = 1, .decoder_layers = 1});
  nn::TransformerEncoderLayer layer(options);
  nn::initialize(model);
  nn::initialize(layer);
  const auto starts_within = [](nn::Module& module, const std::string& name, double bound) {
    INFO(name);
    CHECK(largest(module, name) <= bound);
    CHECK(largest(module, name) > 0.97 * bound);
  };
  const std::string at = "decoder.layers.0.";
  starts_within(model, at + "multihead_attn.in_proj_weight", std::sqrt(6.0 / (32 + 96)));
  starts_within(model, at + "self_attn.out_proj.weight", std::sqrt(6.0 / (32 + 32)));
  starts_within(model, at + "linear1.weight", std::sqrt(6.0 / (32 + 64)));
  starts_within(model, "encoder.layers.0.linear2.weight", std::sqrt(6.0 / (32 + 64)));
  CHECK(largest(model, at + "self_attn.out_proj.bias") == 0);
  CHECK(largest(model, "encoder.norm.weight") == 1);
  starts_within(layer, "self_attn.in_proj_weight", std::sqrt(6.0 / (32 + 96)));
  starts_within(layer, "self_attn.out_proj.weight", 1 / std::sqrt(32.0));
  starts_within(layer, "linear1.weight", 1 / std::sqrt(32.0));
  starts_within(layer, "linear2.weight", 1 / std::sqrt(64.0));
  // Layers of a stack are not copies of one another.
  nn::TransformerEncoder stack({.layer = options, .num_layers = 2});
  nn::initialize(stack);
  CHECK(values(stack.get_parameter("layers.0.linear1.weight").local().tensor()) !=
        values(stack.get_parameter("layers.1.linear1.weight").local().tensor()));
}

TEST_CASE("transformer layers' derivatives, of inputs and of every parameter") {
  for (const bool norm_first : {false, true}) {
    TransformerLayerOptions options = small(norm_first, !norm_first);
    // relu has a kink that a difference may step over.
    options.activation = [](const Variable& x) { return tanh(x); };
    nn::TransformerEncoderLayer encoder(options);
    nn::TransformerDecoderLayer decoder(options);
    fill_with_waves(encoder);
    fill_with_waves(decoder);
    // Irregular, so that no norm divides by a deviation near 0.
    const Variable x(mul(waves({2, 3, 4}, 0.2, 1), waves({2, 3, 4}, 2.2, 1)), true);
    const Variable memory = wave_input({2, 3, 4}, 0.5);
    const auto encode = [&](const std::vector<Variable>& in) {
      return encoder(in[0], TransformerMask{.is_causal = true});
    };
    const auto decode = [&](const std::vector<Variable>& in) { return decoder(in[0], in[1]); };
    const GradCheckResult encoded = grad_check(encode, {x}, {.tolerance = 1e-6});
    INFO(encoded.message);
    CHECK(encoded.passed);
    const GradCheckResult decoded = grad_check(decode, {x, memory}, {.tolerance = 1e-6});
    INFO(decoded.message);
    CHECK(decoded.passed);
    const GradCheckResult encoder_parameters =
        parameter_grad_check(encoder, [&] { return encode({x}); }, {.tolerance = 1e-6});
    INFO(encoder_parameters.message);
    CHECK(encoder_parameters.passed);
    const GradCheckResult decoder_parameters = parameter_grad_check(decoder,
                                                                    [&] {
                                                                      return decode({x, memory});
                                                                    },
                                                                    {.tolerance = 1e-6});
    INFO(decoder_parameters.message);
    CHECK(decoder_parameters.passed);
  }
}

TEST_CASE("every activation is what it says") {
  const auto run = [](nn::TransformerActivation activation) {
    TransformerLayerOptions options = small(true);
    options.activation = std::move(activation);
    nn::TransformerEncoderLayer layer(options);
    fill_with_waves(layer);
    return values(layer(wave_input({1, 2, 4}, 0.2)).tensor());
  };
  using Function = std::function<Variable(const Variable&)>;
  check_close(run(ActivationKind::kNone), run(Function([](const Variable& x) { return x; })));
  check_close(run(ActivationKind::kRelu), run(Function([](const Variable& x) { return relu(x); })));
  check_close(run(ActivationKind::kGelu), run(Function([](const Variable& x) { return gelu(x); })));
  check_close(run(ActivationKind::kGeluTanh),
              run(Function([](const Variable& x) { return gelu_tanh(x); })));
  check_close(run(ActivationKind::kSilu), run(Function([](const Variable& x) { return silu(x); })));
  CHECK(run(ActivationKind::kNone) != run(ActivationKind::kSilu));
}

TEST_CASE("both orders of batch and length give the same, with dropout too") {
  TransformerLayerOptions options = small(false);
  options.dropout = 0.3;
  nn::Transformer batch_first({.layer = options, .encoder_layers = 1, .decoder_layers = 1});
  options.batch_first = false;
  nn::Transformer sequence_first({.layer = options, .encoder_layers = 1, .decoder_layers = 1});
  fill_with_waves(batch_first);
  fill_with_waves(sequence_first);
  const Variable src = wave_input({2, 3, 4}, 0.5), tgt = wave_input({2, 2, 4}, 0.2);
  const auto run = [&](nn::Transformer& model, const Variable& a, const Variable& b) {
    const random::StepScope step({.seed = 5});
    return model(a, b, padded_and_causal());
  };
  const Variable expected = run(batch_first, src, tgt);
  const Variable got = run(sequence_first, transpose(src, 0, 1), transpose(tgt, 0, 1));
  check_close(values(contiguous(transpose(got, 0, 1)).tensor()), values(expected.tensor()));
  batch_first.eval();
  CHECK(values(run(batch_first, src, tgt).tensor()) != values(expected.tensor()));
}

TEST_CASE("a transformer in autocast, and of an empty batch") {
  nn::Transformer model({.layer = {.dim = 8, .heads = 2, .feedforward = 6, .dropout = 0},
                         .encoder_layers = 1,
                         .decoder_layers = 1});
  nn::initialize(model);
  const Variable src(cast(waves({2, 3, 8}, 0.5, 1), DType::kF32)),
      tgt(cast(waves({2, 2, 8}, 0.2, 1), DType::kF32));
  const std::vector<double> exact = values(model(src, tgt).tensor());
  {
    const AutocastGuard autocast(DType::kBF16);
    check_close(values(cast(model(src, tgt).tensor(), DType::kF64)), exact, 0.1);
  }
  CHECK(model(narrow(src, 0, 0, 0), narrow(tgt, 0, 0, 0), TransformerMasks{}).shape() ==
        Shape{0, 2, 8});
}

TEST_CASE("transformers take a sample without a batch, and give that of a batch of one") {
  for (bool batch_first : {true, false}) {
    for (bool norm_first : {true, false}) {
      nn::Transformer model(
          {.layer = small(norm_first, batch_first), .encoder_layers = 2, .decoder_layers = 1});
      fill_with_waves(model);
      nn::Transformer same(
          {.layer = small(norm_first, batch_first), .encoder_layers = 2, .decoder_layers = 1});
      fill_with_waves(same);
      const int batch = batch_first ? 0 : 1;
      const Variable src = wave_input({3, 4}, 0.2), tgt = wave_input({2, 4}, 0.9);
      const Tensor hidden = bools({false, true, false}, {3});
      const auto masks = [](const Tensor& keys) {
        return TransformerMasks{.src = {.key_padding_mask = keys},
                                .tgt = {.is_causal = true},
                                .memory = {.key_padding_mask = keys}};
      };
      const Variable y = model(src, tgt, masks(hidden));
      CHECK(y.shape() == Shape{2, 4});
      backward(weigh(y));
      const Variable src1(src.tensor(), true);
      const Variable y1 = same(unsqueeze(src1, batch), unsqueeze(Variable(tgt.tensor()), batch),
                               masks(hidden.unsqueeze(0)));
      check_close(values(y.tensor()), values(y1.tensor()));
      backward(weigh(y1));
      check_close(weighed_gradients(model), weighed_gradients(same));
      check_close(values(src.grad()), values(src1.grad()));
    }
  }
}

TEST_CASE("transformers name what does not fit") {
  const auto built = []<class Model>(const typename Model::Options& options) {
    return thrown<InvalidArgument>([&] { Model{options}; });
  };
  TransformerLayerOptions options = small(false);
  options.feedforward = 0;
  CHECK(built.operator()<nn::TransformerEncoderLayer>(options) ==
        "[nn.TransformerEncoderLayer] feedforward is 0; it must be at least 1");
  CHECK(built.operator()<nn::TransformerDecoderLayer>(options) ==
        "[nn.TransformerDecoderLayer] feedforward is 0; it must be at least 1");
  options = small(false);
  options.activation = std::function<Variable(const Variable&)>();
  CHECK(built.operator()<nn::TransformerEncoderLayer>(options) ==
        "[nn.TransformerEncoderLayer] the activation is an empty function");
  CHECK(built.operator()<nn::TransformerEncoder>({.layer = small(false)}) ==
        "[nn.TransformerEncoder] num_layers is 0; it must be at least 1");
  CHECK(built.operator()<nn::Transformer>({.layer = small(false), .decoder_layers = -1}) ==
        "[nn.TransformerDecoder] num_layers is -1; it must be at least 1");
  nn::Transformer model({.layer = small(false), .encoder_layers = 1, .decoder_layers = 1});
  nn::initialize(model);
  const auto called = [&](const Shape& src, const Shape& tgt) {
    return thrown<InvalidArgument>([&] { model(wave_input(src, 0), wave_input(tgt, 0)); });
  };
  const std::string expected =
      "[nn.Transformer] expected src and tgt [batch, length, dim] of one batch and one dim, or "
      "both "
      "without a batch, got ";
  CHECK(called({2, 3, 4}, {1, 3, 4}) == expected + "[2, 3, 4] and [1, 3, 4]");
  CHECK(called({2, 3, 4}, {2, 3, 5}) == expected + "[2, 3, 4] and [2, 3, 5]");
  CHECK(called({3, 4}, {3, 5}) == expected + "[3, 4] and [3, 5]");
  CHECK(called({3, 4}, {1, 3, 4}) == expected + "[3, 4] and [1, 3, 4]");
  nn::TransformerDecoderLayer layer(small(false, false));
  nn::initialize(layer);
  CHECK(thrown<InvalidArgument>([&] {
          layer(wave_input({3, 2, 4}, 0), wave_input({3, 4}, 0));
        }) ==
        "[nn.TransformerDecoderLayer] tgt has shape [3, 2, 4] and memory [3, 4]; both have a "
        "batch, or neither");
  CHECK(thrown<InvalidArgument>([&] {
          layer(wave_input({4}, 0), wave_input({3, 4}, 0));
        }) ==
        "[nn.TransformerDecoderLayer] expected an input [length, batch, dim], or [length, dim] "
        "without a batch, got [4]");
  CHECK(thrown<InvalidArgument>([&] {
          layer(wave_input({2, 3, 5}, 0), wave_input({2, 3, 5}, 0));
        }).find("\"self_attn.in_proj_weight\"") != std::string::npos);
  CHECK(thrown<InvalidArgument>([&] {
          layer(wave_input({3, 2, 4}, 0), wave_input({3, 2, 4}, 0),
                TransformerDecoderMasks{.memory = {.key_padding_mask = zeros({3, 2})}});
        }).find("key_padding_mask is [3, 2], expected [2, 3]") != std::string::npos);
}

}  // namespace
}  // namespace tessera::testing
