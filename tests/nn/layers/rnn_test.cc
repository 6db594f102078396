// Recurrent layers: values and gradients as PyTorch's, derivatives against differences, cells, dropout, errors.
#include "tessera/nn/layers/rnn.h"

#include <catch2/catch.hpp>

#include "tessera/tensor/random_scope.h"
#include "tessera/tests/nn/layers/formulas.h"
#include "tessera/tests/nn/layers/layer_support.h"

namespace tessera::testing {
namespace {

constexpr DType kDouble = DType::kF64;

double weighed(const Variable& y) { return weigh(y).item<double>(); }

// The weighed output, h_n and c_n, then the weighed gradients of x, of the initial state, and of the parameters, for
// the loss output + 2 h_n + 3 c_n, each weighed.
std::vector<double> with_gradients(nn::Module& layer, const std::vector<Variable>& outcomes,
                                   const std::vector<Variable>& inputs) {
  std::vector<double> out;
  Variable loss;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    out.push_back(weighed(outcomes[i]));
    const Variable part = mul(weigh(outcomes[i]), static_cast<double>(i + 1));
    loss = loss.defined() ? add(loss, part) : part;
  }
  backward(loss);
  for (const Variable& input : inputs) out.push_back(weighed(Variable(input.grad())));
  for (double g : weighed_gradients(layer)) out.push_back(g);
  return out;
}

TEST_CASE("rnn, values and gradients of PyTorch") {
  nn::RNN plain({.input_size = 3, .hidden_size = 4, .dtype = kDouble});
  fill_with_waves(plain);
  const Variable x = wave_input({5, 2, 3}, 0.5), h = wave_input({1, 2, 4}, 0.2);
  const nn::RNNResult y = plain(x, h);
  CHECK(y.output.shape() == Shape{5, 2, 4});
  CHECK(y.h_n.shape() == Shape{1, 2, 4});
  check_close(with_gradients(plain, {y.output, y.h_n}, {x, h}),
              {0.17809076177922595, -0.04313933153648741, 0.5557274705244479, -0.10379122156131163,
               0.04227060443628766, -4.034443104480108, 3.9277690986036795, 3.9277690986036795});

  nn::RNN deep({.input_size = 3,
                .hidden_size = 4,
                .num_layers = 2,
                .nonlinearity = nn::RNNNonlinearity::kRelu,
                .bias = false,
                .bidirectional = true,
                .dtype = kDouble});
  fill_with_waves(deep);
  const Variable x2 = wave_input({5, 2, 3}, 0.5);
  const nn::RNNResult z = deep(x2);
  check_close(with_gradients(deep, {z.output, z.h_n}, {x2}),
              {0.34584913077562557, -0.1396053440404766, -2.005360466263452, 10.792414445580405,
               -1.928725553299604, 1.216980984242894, 1.343507816766125, 1.0354993106492667,
               0.07639370293029776, -3.807356239871667, 1.0661752913732985});
}

TEST_CASE("lstm, values and gradients of PyTorch") {
  nn::LSTM deep({.input_size = 3,
                 .hidden_size = 4,
                 .num_layers = 2,
                 .batch_first = true,
                 .bidirectional = true,
                 .dtype = kDouble});
  fill_with_waves(deep);
  const Variable x = wave_input({2, 5, 3}, 0.5), h = wave_input({4, 2, 4}, 0.2),
                 c = wave_input({4, 2, 4}, 0.9);
  const nn::LSTMResult y = deep(x, nn::LSTMState{.h = h, .c = c});
  CHECK(y.output.shape() == Shape{2, 5, 8});
  check_close(with_gradients(deep, {y.output, y.h_n, y.c_n}, {x, h, c}),
              {0.5668083114482845,    -0.6495734009946272, -1.5386909186509867, 2.0324460757318636,
               -0.047962342673740214, 5.7479146560608765,  0.09493415238021675, 1.4965422436651588,
               -8.677826352420768,    -8.67782635242077,   6.134116015016593,   -1.339604826483187,
               19.499979734880114,    19.49997973488011,   0.20582300445222046, -3.568892878713455,
               -18.33265684444328,    -18.33265684444328,  0.43251655178435017, -1.914158489441887,
               9.7879041709254,       9.7879041709254},
              1e-11);

  nn::LSTM plain({.input_size = 3, .hidden_size = 2, .dtype = kDouble});
  fill_with_waves(plain);
  const Variable one = wave_input({5, 3}, 0.5), h1 = wave_input({1, 2}, 0.2),
                 c1 = wave_input({1, 2}, 0.9);
  const nn::LSTMResult z = plain(one, nn::LSTMState{.h = h1, .c = c1});
  CHECK(z.output.shape() == Shape{5, 2});
  CHECK(z.c_n.shape() == Shape{1, 2});
  check_close(with_gradients(plain, {z.output, z.h_n, z.c_n}, {one, h1, c1}),
              {0.4350227163133419, -0.25116041247390786, -0.45222751837056463, 0.7216024036694964,
               0.22274999247965205, 0.6164399532357452, -4.239921526999412, 0.0008311300347806916,
               0.6776633993965231, 0.6776633993965231});
}

TEST_CASE("gru, values and gradients of PyTorch") {
  nn::GRU deep({.input_size = 3,
                .hidden_size = 4,
                .num_layers = 2,
                .bidirectional = true,
                .dtype = kDouble});
  fill_with_waves(deep);
  const Variable x = wave_input({5, 2, 3}, 0.5), h = wave_input({4, 2, 4}, 0.2);
  const nn::RNNResult y = deep(x, h);
  check_close(with_gradients(deep, {y.output, y.h_n}, {x, h}),
              {1.6414032832783085,   0.07625909646735185, -0.4738452258193878, 2.570422540247261,
               1.0373884460276095,   1.7001206574449912,  -5.463058167669851,  -3.113358859331525,
               -0.9785685295433096,  -0.546754798522246,  11.323159060029214,  6.450875525436261,
               -0.10198108231503694, -0.9711484114073158, -9.128420880457249,  -4.137053249784917,
               1.423392380163412,    -0.8301517867393303, 6.405879645651526,   2.892748973984493},
              1e-11);

  nn::GRU narrow({.input_size = 3,
                  .hidden_size = 2,
                  .num_layers = 3,
                  .bias = false,
                  .batch_first = true,
                  .dtype = kDouble});
  fill_with_waves(narrow);
  const Variable x2 = wave_input({1, 4, 3}, 0.5);
  const nn::RNNResult z = narrow(x2);
  check_close(with_gradients(narrow, {z.output, z.h_n}, {x2}),
              {-0.00021760007094500907, 0.05768792717157374, 0.1497768689115283, -3.444500021330157,
               -0.25067054763130964, -0.2000268995436466, -0.019227891056999073,
               -0.012103445485126678, 0.0003123386995218494});
}

TEST_CASE("cells are one step, as PyTorch's") {
  const Variable x = wave_input({2, 3}, 0.5), h = wave_input({2, 4}, 0.2),
                 c = wave_input({2, 4}, 0.9);
  nn::RNNCell rnn({.input_size = 3, .hidden_size = 4, .dtype = kDouble});
  nn::LSTMCell lstm({.input_size = 3, .hidden_size = 4, .dtype = kDouble});
  nn::GRUCell gru({.input_size = 3, .hidden_size = 4, .dtype = kDouble});
  for (nn::Module* cell : std::vector<nn::Module*>{&rnn, &lstm, &gru}) fill_with_waves(*cell);
  const Variable first = select(x, 0, 0);
  check_close(
      {weighed(rnn(x, h)), weighed(rnn(first)), weighed(gru(x, h)), weighed(gru(first))},
      {-0.018906336497919563, 0.09074238163259493, 1.9513994299428703, 0.23799499232652857});
  CHECK(rnn(first).shape() == Shape{4});
  const nn::LSTMState after = lstm(x, nn::LSTMState{.h = h, .c = c});
  check_close({weighed(after.h), weighed(after.c), weighed(lstm(x).c)},
              {0.5375732817886272, 1.33063922342099, 0.20608175545282745});
  CHECK(check_gradients(rnn, x) == "");
  CHECK(check_gradients(gru, x) == "");
  CHECK(rnn.bias_hh().shape() == Shape{4});
  CHECK(gru.weight_ih().shape() == Shape{12, 3});
}

TEST_CASE("recurrent layers: derivatives against differences") {
  const Variable x = random_input({4, 2, 3}, 1);
  const auto check = [&](nn::Module& layer, const auto& call) {
    nn::initialize(layer);
    const Variable leaf(x.tensor(), true);
    const auto function = [&](const std::vector<Variable>& in) { return call(in[0]); };
    CHECK(grad_check(function, {leaf}).passed);
    CHECK(grad_grad_check(function, {leaf}).passed);
    CHECK(parameter_grad_check(layer, [&] { return call(x); }).passed);
  };
  nn::LSTM lstm({.input_size = 3, .hidden_size = 2, .num_layers = 2, .dtype = kDouble});
  check(lstm, [&](const Variable& in) {
    const nn::LSTMResult y = lstm(in);
    return add(y.output, sum(y.c_n));
  });
  nn::GRU gru({.input_size = 3, .hidden_size = 2, .bidirectional = true, .dtype = kDouble});
  check(gru, [&](const Variable& in) { return gru(in).output; });
}

TEST_CASE("recurrent layers: names, initial values, no samples, 16 bits") {
  nn::LSTM layer({.input_size = 3, .hidden_size = 16, .num_layers = 2, .bidirectional = true});
  std::vector<std::string> names;
  for (const auto& [name, parameter] : layer.named_parameters()) names.push_back(name);
  CHECK(names == std::vector<std::string>{
                     "weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0",
                     "weight_ih_l0_reverse", "weight_hh_l0_reverse", "bias_ih_l0_reverse",
                     "bias_hh_l0_reverse", "weight_ih_l1", "weight_hh_l1", "bias_ih_l1",
                     "bias_hh_l1", "weight_ih_l1_reverse", "weight_hh_l1_reverse",
                     "bias_ih_l1_reverse", "bias_hh_l1_reverse"});
  CHECK(layer.weight_ih(1, true).shape() == Shape{64, 32});
  CHECK(layer.bias_hh(1).shape() == Shape{64});
  nn::initialize(layer);
  for (const nn::Parameter& p : layer.parameters()) {
    double largest = 0;
    for (double v : values(p.local().tensor())) largest = std::max(largest, std::abs(v));
    CHECK(largest <= 0.25);
    CHECK(largest > 0.2);
  }
  const nn::LSTMResult none = layer(Variable(zeros({4, 0, 3})));
  CHECK(none.output.shape() == Shape{4, 0, 32});
  CHECK(none.c_n.shape() == Shape{4, 0, 16});
  nn::GRU half({.input_size = 3, .hidden_size = 4, .dtype = DType::kBF16});
  nn::initialize(half);
  CHECK(half(Variable(ones({2, 1, 3}, {.dtype = DType::kBF16}))).output.dtype() == DType::kBF16);
}

TEST_CASE("dropout falls between layers, in training, the same for a sample on any rank") {
  nn::GRU layer(
      {.input_size = 3, .hidden_size = 4, .num_layers = 2, .dropout = 0.5, .dtype = kDouble});
  fill_with_waves(layer);
  const Variable x = random_input({5, 6, 3}, 2);
  const auto run = [&](const Variable& in, std::int64_t first) {
    const random::StepScope step({.seed = 1, .step = 2, .first_sample = first});
    return layer(in).output;
  };
  const Variable y = run(x, 0);
  layer.eval();
  CHECK(values(run(x, 0).tensor()) != values(y.tensor()));
  layer.train();
  const Variable part = run(narrow(x, 1, 4, 2), 4);
  check_close(values(part.tensor()), values(contiguous(y.tensor().narrow(1, 4, 2))));
  nn::GRU single({.input_size = 3, .hidden_size = 4, .dropout = 0.5, .dtype = kDouble});
  fill_with_waves(single);
  CHECK(values(single(x).output.tensor()) == values(single(x).output.tensor()));
}

TEST_CASE("recurrent layers name what does not fit") {
  const auto text = [](auto body) { return thrown<InvalidArgument>(body); };
  CHECK(text([] { nn::LSTM({.hidden_size = 2}); }) ==
        "[nn.LSTM] input_size 0, hidden_size 2 and num_layers 1 must be at least 1");
  CHECK(text([] { nn::RNN({.input_size = 1, .hidden_size = 2, .dropout = 2}); }) ==
        "[nn.RNN] dropout is 2; it must lie in [0, 1]");
  nn::LSTM layer({.input_size = 3, .hidden_size = 2, .bias = false});
  nn::initialize(layer);
  CHECK(text([&] {
          layer(Variable(zeros({2, 1, 4})));
        }) ==
        "[nn.LSTM] \"weight_ih_l0\" of shape [8, 3] expects an input [length, samples, 3] or "
        "[length, 3], got [2, 1, 4]");
  CHECK(text([&] {
          layer(Variable(zeros({0, 1, 3})));
        }) == "[nn.LSTM] an input of shape [0, 1, 3] has no steps; it needs one or more");
  const Variable x(zeros({2, 1, 3}));
  CHECK(text([&] {
          layer(x, nn::LSTMState{.h = Variable(zeros({1, 2}))});
        }) ==
        "[nn.LSTM] the initial h has shape [1, 2], expected [1, 1, 2]: layers times directions, "
        "samples, features");
  CHECK(text([&] {
          layer(select(x, 1, 0), nn::LSTMState{.c = Variable(zeros({1, 1, 2}))});
        }) ==
        "[nn.LSTM] the initial c has shape [1, 1, 2], expected [1, 2]: layers times directions, "
        "features");
  CHECK(text([&] {
          layer(Variable(zeros({2, 1, 3}, {.dtype = kDouble})));
        }).find("the input f64") != std::string::npos);
  CHECK(thrown<StateError>([&] { layer.bias_ih(); }) ==
        "[nn.LSTM] no bias: it was built with .bias = false");
  CHECK(text([&] { layer.weight_hh(0, true); }) ==
        "[nn.LSTM] there is no layer 0 in reverse: it has 1 layers, forward only");
  nn::GRUCell cell({.input_size = 3, .hidden_size = 2});
  nn::initialize(cell);
  CHECK(text([&] { cell(x); }) ==
        "[nn.GRUCell] \"weight_ih\" of shape [6, 3] expects an input [samples, 3] or [3], got [2, "
        "1, 3]");
  CHECK(text([&] { cell(select(x, 1, 0), Variable(zeros({2}))); }) ==
        "[nn.GRUCell] h has shape [2], expected [2, 2]");
}

}  // namespace
}  // namespace tessera::testing
