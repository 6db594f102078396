// Activations against their formulas; derivatives at the kinks are PyTorch's.

#include "tessera/nn/layers/activation.h"

#include <catch2/catch.hpp>
#include <limits>

#include "tessera/nn/layers/sequential.h"
#include "tessera/tests/nn/layers/layer_support.h"

namespace tessera {
namespace {

using testing::random_input;
using testing::thrown;
using testing::values;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }
double softplus_of(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }
double clamped(double x, double low, double high) { return std::min(std::max(x, low), high); }
double elu_of(double x, double alpha) { return x > 0 ? x : alpha * std::expm1(x); }

struct Case {
  const char* name;
  std::function<nn::Lambda::Function()> make;
  std::function<double(double)> formula;
  // Slopes at 0, and where said; at NaN, those that are not NaN.
  std::vector<std::pair<double, double>> slopes;
};

// Makes an L and keeps it.
template <class L>
std::function<nn::Lambda::Function()> made(const auto&... options) {
  return [=]() -> nn::Lambda::Function {
    return [layer = std::make_shared<L>(options...)](const Variable& x) { return (*layer)(x); };
  };
}

constexpr double kSeluAlpha = 1.6732632423543772, kSeluScale = 1.0507009873554805;

std::vector<Case> rectifiers() {
  using namespace nn;
  return {
      {"ReLU", made<ReLU>(), [](double x) { return std::max(x, 0.0); }, {{0, 0}, {kNaN, 1}}},
      {"ReLU6",
       made<ReLU6>(),
       [](double x) { return clamped(x, 0, 6); },
       {{0, 0}, {6, 0}, {5.9, 1}, {kNaN, 1}}},
      {"LeakyReLU",
       made<LeakyReLU>(),
       [](double x) { return x > 0 ? x : 0.01 * x; },
       {{0, 0.01}, {kNaN, 0.01}}},
      {"LeakyReLU 2",
       made<LeakyReLU>(LeakyReLUOptions{.negative_slope = 2}),
       [](double x) { return x > 0 ? x : 2 * x; },
       {{0, 2}}},
      {"ELU", made<ELU>(), [](double x) { return elu_of(x, 1); }, {{0, 1}, {800, 1}, {kNaN, 1}}},
      {"ELU 0.5",
       made<ELU>(ELUOptions{.alpha = 0.5}),
       [](double x) { return elu_of(x, 0.5); },
       {{0, 0.5}, {kNaN, 1}}},
      {"CELU",
       made<CELU>(CELUOptions{.alpha = 2}),
       [](double x) { return x > 0 ? x : 2 * std::expm1(x / 2); },
       {{0, 1}, {900, 1}, {kNaN, 1}}},
      {"SELU",
       made<SELU>(),
       [](double x) { return kSeluScale * elu_of(x, kSeluAlpha); },
       {{0, kSeluScale * kSeluAlpha}, {kNaN, kSeluScale}}},
      {"GELU",
       made<GELU>(),
       [](double x) { return x * 0.5 * (1 + std::erf(x / std::sqrt(2.0))); },
       {{0, 0.5}}},
      {"GELU tanh",
       made<GELU>(GELUOptions{.approximate = GELUApproximate::kTanh}),
       [](double x) {
         return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
       },
       {{0, 0.5}}},
  };
}

std::vector<Case> curves() {
  using namespace nn;
  return {
      {"SiLU", made<SiLU>(), [](double x) { return x * sigmoid_of(x); }, {{0, 0.5}}},
      {"Mish", made<Mish>(), [](double x) { return x * std::tanh(softplus_of(x)); }, {{0, 0.6}}},
      {"Sigmoid", made<Sigmoid>(), sigmoid_of, {{0, 0.25}}},
      {"LogSigmoid",
       made<LogSigmoid>(),
       [](double x) { return -softplus_of(-x); },
       {{0, 0.5}, {-800, 1}}},
      {"Hardsigmoid",
       made<Hardsigmoid>(),
       [](double x) { return clamped(x + 3, 0, 6) / 6; },
       {{0, 1.0 / 6}, {-3, 0}, {3, 0}, {kNaN, 0}}},
      {"Hardswish",
       made<Hardswish>(),
       [](double x) { return x * clamped(x + 3, 0, 6) / 6; },
       {{0, 0.5}, {-3, 0}, {3, 1}}},
      {"Tanh", made<Tanh>(), [](double x) { return std::tanh(x); }, {{0, 1}}},
      {"Hardtanh",
       made<Hardtanh>(),
       [](double x) { return clamped(x, -1, 1); },
       {{0, 1}, {-1, 0}, {1, 0}, {kNaN, 1}}},
      {"Hardtanh 2",
       made<Hardtanh>(HardtanhOptions{.min_val = -0.5, .max_val = 2}),
       [](double x) { return clamped(x, -0.5, 2); },
       {{0, 1}, {-0.5, 0}, {2, 0}, {kNaN, 1}}},
      {"Softplus", made<Softplus>(), softplus_of, {{0, 0.5}, {800, 1}}},
      {"Softplus 3",
       made<Softplus>(SoftplusOptions{.beta = 3}),
       [](double x) { return softplus_of(3 * x) / 3; },
       {{0, 0.5}, {800, 1}}},
      {"Softsign", made<Softsign>(), [](double x) { return x / (1 + std::abs(x)); }, {{0, 1}}},
      {"Tanhshrink", made<Tanhshrink>(), [](double x) { return x - std::tanh(x); }, {{0, 0}}},
      {"Hardshrink",
       made<Hardshrink>(ShrinkOptions{.lambd = 1.5}),
       [](double x) { return std::abs(x) > 1.5 ? x : 0; },
       {{0, 0}, {-1.5, 0}, {1.5, 0}, {1.6, 1}, {kNaN, 1}}},
      {"Softshrink",
       made<Softshrink>(ShrinkOptions{.lambd = 0.3}),
       [](double x) { return x > 0.3    ? x - 0.3
                             : x < -0.3 ? x + 0.3
                                        : 0; },
       {{0, 0}, {-0.3, 0}, {0.3, 0}, {0.4, 1}, {kNaN, 1}}},
      {"Threshold",
       made<Threshold>(ThresholdOptions{.threshold = 0.3, .value = -7}),
       [](double x) { return x > 0.3 ? x : -7; },
       {{0.3, 0}, {0.31, 1}, {kNaN, 1}}},
  };
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> both = rectifiers();
    for (Case& c : curves()) both.push_back(std::move(c));
    return both;
  }();
  return all;
}

TEST_CASE("activations are their formulas") {
  const std::vector<double> in{-9.5, -3, -1.5, -0.25, 0, 0.3, 1.5, 3, 6, 7.25, 40};
  for (const Case& c : cases()) {
    INFO(c.name);
    const nn::Lambda::Function layer = c.make();
    const auto count = static_cast<std::int64_t>(in.size());
    const std::vector<double> out =
        values(layer(Variable(Tensor::from_vector(in, {count}))).tensor());
    for (std::size_t i = 0; i < in.size(); ++i)
      CHECK(out[i] == Approx(c.formula(in[i])).epsilon(1e-13).margin(1e-15));
    CHECK(layer(random_input({0, 3}, 1)).shape() == Shape{0, 3});
    CHECK(layer(random_input({}, 1)).ndim() == 0);
    CHECK(std::isnan(layer(Variable(Tensor::scalar(kNaN, {.dtype = DType::kF64}))).item<double>()));
  }
}

TEST_CASE("activations: derivatives, also at the kinks") {
  for (const Case& c : cases()) {
    INFO(c.name);
    const nn::Lambda::Function layer = c.make();
    const Variable x = random_input({3, 5}, 4, true);
    const auto call = [&](const std::vector<Variable>& in) { return layer(in[0]); };
    CHECK(grad_check(call, {x}).passed);
    for (const auto& [at, slope] : c.slopes) {
      const Variable point(Tensor::scalar(at, {.dtype = DType::kF64}), true);
      backward(layer(point));
      INFO("at " << at);
      CHECK(point.grad().item<double>() == Approx(slope).margin(1e-15));
    }
  }
}

TEST_CASE("activations of 16 bits are those of f32, rounded once") {
  for (const Case& c : cases()) {
    INFO(c.name);
    const nn::Lambda::Function layer = c.make();
    for (DType dtype : {DType::kBF16, DType::kF16}) {
      const Tensor x = cast(random_input({7, 5}, 5).tensor(), dtype);
      const Variable y = layer(Variable(x));
      const Variable wide = layer(Variable(cast(x, DType::kF32)));
      const testing::CloseResult same = testing::all_equal(y.tensor(), cast(wide.tensor(), dtype));
      INFO(same.message);
      CHECK(same.ok);
    }
  }
}

TEST_CASE("softmax and log-softmax run over their dim") {
  const Variable x = random_input({2, 3, 4}, 6);
  for (int dim : {-1, 0, 1}) {
    nn::Softmax softmax_layer({.dim = dim});
    nn::LogSoftmax log_layer({.dim = dim});
    const Variable y = softmax_layer(x);
    const std::vector<double> sums = values(sum(y, {dim}).tensor());
    for (double total : sums) CHECK(total == Approx(1));
    const std::vector<double> logs = values(log_layer(x).tensor()), plain = values(y.tensor());
    for (std::size_t i = 0; i < plain.size(); ++i) CHECK(logs[i] == Approx(std::log(plain[i])));
  }
  nn::Sequential net;
  net.add<nn::Softmax>();
  CHECK(values(net(x).tensor()) == values(softmax(x, -1).tensor()));
}

TEST_CASE("softmin is the softmax of the negative, softmax2d that over the channels") {
  const Variable x = random_input({2, 3, 4, 5}, 9);
  const std::vector<double> in = values(x.tensor());
  nn::Softmin low({.dim = 1});
  nn::Softmax2d high;
  const std::vector<double> mins = values(low(x).tensor()), maxes = values(high(x).tensor());
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::size_t first = i / 60 * 60 + i % 20;
    double down = 0, up = 0;
    for (std::size_t c = 0; c < 3; ++c) {
      down += std::exp(-in[first + 20 * c]);
      up += std::exp(in[first + 20 * c]);
    }
    CHECK(mins[i] == Approx(std::exp(-in[i]) / down));
    CHECK(maxes[i] == Approx(std::exp(in[i]) / up));
  }
  CHECK(high(select(x, 0, 1)).shape() == Shape{3, 4, 5});
  CHECK(testing::check_gradients(low, x) == "");
  CHECK(thrown<InvalidArgument>([&] {
          high(random_input({2, 3}, 1));
        }) ==
        "[nn.Softmax2d] needs an input [samples, channels, height, width] or [channels, height, "
        "width], got [2, 3]");
  CHECK(thrown<InvalidArgument>([&] { softmin(random_input({}, 1), 1); }) ==
        "[softmin] dim 1 does not exist in a tensor of 1 dims; give one from -1 to 0");
}

TEST_CASE("glu is one half times the gate that the other half makes") {
  nn::GLU layer({.dim = 1});
  const Variable x = random_input({2, 6, 3}, 7);
  const Variable y = layer(x);
  REQUIRE(y.shape() == Shape{2, 3, 3});
  const std::vector<double> in = values(x.tensor()), out = values(y.tensor());
  for (std::size_t n = 0; n < 2; ++n) {
    for (std::size_t i = 0; i < 9; ++i)
      CHECK(out[n * 9 + i] == Approx(in[n * 18 + i] * sigmoid_of(in[n * 18 + 9 + i])));
  }
  CHECK(testing::check_gradients(layer, x) == "");
  nn::GLU last;
  CHECK(thrown<InvalidArgument>([&] { last(x); }) ==
        "[glu] dim 2 of shape [2, 6, 3] has an odd extent; it is halved");
}

TEST_CASE("prelu trains a slope for all, or for each channel") {
  nn::PReLU one({.dtype = DType::kF64});
  nn::PReLU each({.channels = 3, .init = -0.5, .dtype = DType::kF64});
  nn::initialize(one);
  nn::initialize(each);
  CHECK(values(each.weight().local().tensor()) == std::vector<double>(3, -0.5));
  copy_(each.weight().local().tensor(), Tensor::from_vector<double>({0.5, 2, -1}, {3}));
  const Variable x = random_input({2, 3, 5}, 8);
  const std::vector<double> in = values(x.tensor()), out = values(each(x).tensor());
  const double slopes[] = {0.5, 2, -1};
  for (std::size_t i = 0; i < in.size(); ++i)
    CHECK(out[i] == Approx(in[i] > 0 ? in[i] : in[i] * slopes[i / 5 % 3]));
  CHECK(values(one(Variable(Tensor::from_vector<double>({-2, 4}, {2}))).tensor()) ==
        std::vector<double>{-0.5, 4});
  CHECK(one(random_input({}, 1)).ndim() == 0);
  CHECK(testing::check_gradients(one, x) == "");
  CHECK(testing::check_gradients(each, x) == "");
  CHECK(testing::check_gradients(each, random_input({0, 3}, 1)) == "");
  CHECK(testing::check_16_bits<nn::PReLU>({.channels = 3}, x) == "");
  CHECK(thrown<InvalidArgument>([&] {
          each(random_input({2, 4}, 1));
        }) == "[nn.PReLU] \"weight\" of shape [3] expects an input [samples, 3, ...], got [2, 4]");
  CHECK(thrown<InvalidArgument>([&] {
          each(Variable(zeros({2, 3})));
        }).find("the input f32") != std::string::npos);
}

TEST_CASE("activations refuse options without a meaning") {
  CHECK(thrown<InvalidArgument>([] { nn::PReLU({.channels = 0}); }) ==
        "[nn.PReLU] channels is 0; it must be at least 1");
  CHECK(thrown<InvalidArgument>([] { nn::CELU({.alpha = 0}); }) ==
        "[nn.CELU] alpha is 0; it must be another number");
  CHECK(thrown<InvalidArgument>([] { nn::Softplus({.beta = 0}); }) ==
        "[nn.Softplus] beta is 0; it must be another number");
  CHECK(thrown<InvalidArgument>([] { nn::Softshrink({.lambd = -1}); }) ==
        "[nn.Softshrink] lambd is -1; it must not be negative");
  const Variable x = random_input({2}, 1);
  CHECK(thrown<InvalidArgument>([&] { softshrink(x, -1); }) ==
        "[softshrink] lambd is -1; it must not be negative");
  CHECK(thrown<InvalidArgument>([&] { celu(x, 0); }) ==
        "[celu] alpha is 0; it must be another number");
  CHECK(thrown<InvalidArgument>([&] { hardtanh(x, 2, 2); }) ==
        "[hardtanh] min_val = 2 must be below max_val = 2");
  CHECK(thrown<InvalidArgument>([&] { prelu(x, random_input({3}, 1)); }) ==
        "[prelu] a weight of shape [3] does not fit x of shape [2]: it has 1 slope, or as many as "
        "x [samples, channels, ...] has channels");
  CHECK(thrown<InvalidArgument>([] { nn::Hardtanh({.min_val = 1, .max_val = 1}); }) ==
        "[nn.Hardtanh] min_val = 1 must be below max_val = 1");
}

}  // namespace
}  // namespace tessera
