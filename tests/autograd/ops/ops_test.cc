// Elementwise and matrix operations, losses: the value against the tensor operation, its
// derivatives against differences.
#include "tessera/autograd/ops/ops.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <utility>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/inplace.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

const std::vector<Shape> kShapes = {{}, {1}, {7}, {3, 5}, {0}, {2, 0, 3}, {2, 1, 3}};

struct Unary {
  const char* name;
  Variable (*differentiable)(const Variable&);
  Tensor (*plain)(const Tensor&);
  double low, high;  // of the operand
};

const std::vector<Unary> kUnary = {
    {"neg", neg, neg, -2, 2},
    {"abs", abs, abs, -2, 2},
    {"square", square, square, -2, 2},
    {"reciprocal", reciprocal, reciprocal, 0.5, 3},
    {"exp", exp, exp, -2, 2},
    {"exp2", exp2, exp2, -2, 2},
    {"expm1", expm1, expm1, -2, 2},
    {"log", log, log, 0.5, 3},
    {"log2", log2, log2, 0.5, 3},
    {"log10", log10, log10, 0.5, 3},
    {"log1p", log1p, log1p, -0.5, 3},
    {"sqrt", sqrt, sqrt, 0.5, 3},
    {"rsqrt", rsqrt, rsqrt, 0.5, 3},
    {"sin", sin, sin, -3, 3},
    {"cos", cos, cos, -3, 3},
    {"tan", tan, tan, -1, 1},
    {"asin", asin, asin, -0.8, 0.8},
    {"acos", acos, acos, -0.8, 0.8},
    {"atan", atan, atan, -2, 2},
    {"sinh", sinh, sinh, -2, 2},
    {"cosh", cosh, cosh, -2, 2},
    {"tanh", tanh, tanh, -2, 2},
    {"asinh", asinh, asinh, -2, 2},
    {"acosh", acosh, acosh, 1.3, 3},
    {"atanh", atanh, atanh, -0.8, 0.8},
    {"sinc", sinc, sinc, -2, 2},
    {"sinc near 0", sinc, sinc, -0.019, 0.019},
    {"deg2rad", deg2rad, deg2rad, -2, 2},
    {"rad2deg", rad2deg, rad2deg, -2, 2},
    {"erf", erf, erf, -2, 2},
    {"erfc", erfc, erfc, -2, 2},
    {"erfinv", erfinv, erfinv, -0.8, 0.8},
    {"lgamma", lgamma, lgamma, 0.5, 3},
    {"lgamma below 0", lgamma, lgamma, -0.8, -0.3},
    {"digamma", digamma, digamma, 0.5, 3},
    {"digamma below 0", digamma, digamma, -0.8, -0.3},
    {"frac", frac, frac, -0.9, 0.9},
    {"sigmoid", sigmoid, sigmoid, -3, 3},
    {"relu", relu, relu, -2, 2},
    {"gelu", gelu, gelu, -3, 3},
    {"gelu_tanh", gelu_tanh, gelu_tanh, -3, 3},
    {"silu", silu, silu, -3, 3},
    {"softplus", softplus, softplus, -3, 3},
};

TEST_CASE("unary operations") {
  for (const Unary& op : kUnary) {
    for (const Shape& shape : kShapes) {
      INFO(op.name << shape.str());
      const Variable x = leaf(shape, op.low, op.high);
      CHECK(values(op.differentiable(x)) == values(op.plain(x.tensor())));
      check_twice([&](const Inputs& in) { return op.differentiable(in[0]); }, Inputs{x});
      if (shape.ndim() == 2) {
        check_twice([&](const Inputs& in) { return op.differentiable(transpose(in[0], 0, 1)); },
                    Inputs{x});
      }
    }
  }
}

// With create_graph the slope is made of other operations than without: both must agree.
TEST_CASE("unary operations: the composed slope is the quick one") {
  for (const Unary& op : kUnary) {
    INFO(op.name);
    const Variable x = leaf({3, 5}, op.low, op.high), y = op.differentiable(x);
    const Tensor dy = irregular({3, 5});
    const auto slope = [&](bool create_graph) {
      return values(grad({&y, 1}, {&x, 1},
                         {.gradient = dy, .retain_graph = true, .create_graph = create_graph})[0]);
    };
    const auto quick = slope(false), composed = slope(true);
    for (std::size_t i = 0; i < quick.size(); ++i)
      CHECK(composed[i] == Approx(quick[i]).epsilon(1e-13).margin(1e-14));
  }
}

TEST_CASE("steps have no slope") {
  for (auto op :
       {static_cast<Variable (*)(const Variable&)>(sign), {floor}, {ceil}, {round}, {trunc}}) {
    const Variable x = leaf({5}, -3, 3), y = op(x);
    CHECK(y.requires_grad());
    backward(sum(add(y, x)));
    CHECK(values(x.grad()) == std::vector<double>(5, 1.0));
  }
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST_CASE("relu: its derivative at zero is zero, at NaN one") {
  const Variable x(Tensor::from_vector<double>({-1, 0, 2, kNaN}, {4}), true);
  const std::vector<double> expected{0, 0, 1, 1};
  const Tensor dy = ones({4}, {.dtype = DType::kF64});
  const Variable y = relu(x);
  for (const bool create_graph : {false, true}) {
    CHECK(values(grad({&y, 1}, {&x, 1},
                      {.gradient = dy, .retain_graph = true, .create_graph = create_graph})[0]) ==
          expected);
  }
  const Variable in_place = clone(x);
  relu_(in_place);
  backward(sum(in_place));
  CHECK(values(x.grad()) == expected);
}

struct Binary {
  const char* name;
  Variable (*differentiable)(const VariableOrNumber&, const VariableOrNumber&);
  Tensor (*plain)(const TensorOrNumber&, const TensorOrNumber&);
};
const std::vector<Binary> kBinary = {{"add", add, add},
                                     {"sub", sub, sub},
                                     {"mul", mul, mul},
                                     {"div", div, div},
                                     {"maximum", maximum, maximum},
                                     {"minimum", minimum, minimum},
                                     {"fmax", fmax, fmax},
                                     {"fmin", fmin, fmin},
                                     {"atan2", atan2, atan2},
                                     {"hypot", hypot, hypot},
                                     {"copysign", copysign, copysign},
                                     {"logaddexp", logaddexp, logaddexp},
                                     {"logaddexp2", logaddexp2, logaddexp2},
                                     {"xlogy", xlogy, xlogy}};
// Of positive numbers only, or steps apart.
const std::vector<Binary> kPositiveBinary = {
    {"pow", pow, pow}, {"remainder", remainder, remainder}, {"fmod", fmod, fmod}};

TEST_CASE("binary operations, broadcasting either way") {
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {{}, {}},         {{5}, {5}},       {{3, 4}, {4}},       {{4}, {3, 4}},
      {{3, 1}, {1, 4}}, {{}, {2, 3}},     {{2, 1, 3}, {4, 1}}, {{1, 1}, {1}},
      {{0}, {1}},       {{2, 0}, {2, 1}}, {{0, 3}, {3}},
  };
  for (const Binary& op : kBinary) {
    for (const auto& [a_shape, b_shape] : shapes) {
      INFO(op.name << a_shape.str() << b_shape.str());
      const Inputs inputs = {leaf(a_shape, -2, 2), leaf(b_shape, 0.7, 2, 0.3)};
      CHECK(values(op.differentiable(inputs[0], inputs[1])) ==
            values(op.plain(inputs[0].tensor(), inputs[1].tensor())));
      check_twice([&](const Inputs& in) { return op.differentiable(in[0], in[1]); }, inputs);
    }
  }
}

TEST_CASE("binary operations with one constant, and with one variable twice") {
  const Variable constant_operand(irregular({4}, 0.7, 2, 0.37));
  for (const Binary& op : kBinary) {
    INFO(op.name);
    const Inputs x = {leaf({3, 4}, 0.7, 2)};
    check_twice([&](const Inputs& in) { return op.differentiable(in[0], constant_operand); }, x);
    check_twice([&](const Inputs& in) { return op.differentiable(constant_operand, in[0]); }, x);
    check_twice([&](const Inputs& in) { return op.differentiable(in[0], in[0]); }, x);
  }
}

TEST_CASE("pow and remainder: derivatives for positive operands") {
  for (const Binary& op : kPositiveBinary) {
    for (const auto& [a_shape, b_shape] :
         {std::pair<Shape, Shape>{{3, 4}, {4}}, {{4}, {3, 1}}, {{}, {2}}, {{0}, {1}}}) {
      INFO(op.name << a_shape.str() << b_shape.str());
      const Inputs inputs = {leaf(a_shape, 1.1, 1.4), leaf(b_shape, 0.75, 1, 0.3)};
      CHECK(values(op.differentiable(inputs[0], inputs[1])) ==
            values(op.plain(inputs[0].tensor(), inputs[1].tensor())));
      check_twice([&](const Inputs& in) { return op.differentiable(in[0], in[1]); }, inputs);
      check_twice([&](const Inputs& in) { return op.differentiable(in[0], 0.8); }, {inputs[0]});
      check_twice([&](const Inputs& in) { return op.differentiable(1.3, in[0]); }, {inputs[1]});
    }
  }
}

TEST_CASE("pow: the slope where base or exponent is zero or the base negative") {
  const Variable x(Tensor::from_vector<double>({0, -2, 3}, {3}), true);
  // CUDA's pow of whole numbers may be one unit in the last place away from a whole number, which
  // for 27 is 2^-48.
  const auto rounded = [](std::vector<double> all) {
    if (default_device().is_cuda())
      for (double& each : all) each = std::round(each * 0x1p46) * 0x1p-46;
    return all;
  };
  const auto slope = [&](double n) {
    const Variable y = pow(x, n);
    return rounded(
        values(grad({&y, 1}, {&x, 1}, {.gradient = ones({3}, {.dtype = DType::kF64})})[0]));
  };
  CHECK(slope(0) == std::vector<double>{0, 0, 0});
  CHECK(slope(1) == std::vector<double>{1, 1, 1});
  CHECK(slope(2) == std::vector<double>{0, -4, 6});
  CHECK(slope(3) == std::vector<double>{0, 12, 27});
  const Variable b(Tensor::from_vector<double>({0, 2, 1.5}, {3}), true),
      base = Variable(zeros({3}));
  const Variable y = pow(base, b), z = pow(0, b);
  for (const Variable& power : {y, z}) {
    CHECK(values(grad({&power, 1}, {&b, 1}, {.gradient = ones({3}, {.dtype = DType::kF64})})[0]) ==
          std::vector<double>{0, 0, 0});
  }
  const Variable n(Tensor::from_vector<double>({0, 1, 2}, {3})),
      power = pow(x, Variable(n.tensor(), true));
  CHECK(rounded(values(
            grad({&power, 1}, {&x, 1}, {.gradient = ones({3}, {.dtype = DType::kF64})})[0])) ==
        std::vector<double>{0, 1, 6});
}

TEST_CASE("maximum and minimum: equal elements share the gradient") {
  const Variable a(Tensor::from_vector<double>({1, 2, 3}, {3}), true),
      b(Tensor::from_vector<double>({1, 5, 0}, {3}), true);
  backward(sum(add(maximum(a, b), mul(minimum(a, b), 10))));
  CHECK(values(a.grad()) == std::vector<double>{5.5, 10, 1});
  CHECK(values(b.grad()) == std::vector<double>{5.5, 1, 10});
}

TEST_CASE("maximum and minimum: NaN in either passes the gradient on to both") {
  const Variable a(Tensor::from_vector<double>({kNaN, 1, kNaN}, {3}), true),
      b(Tensor::from_vector<double>({1, kNaN, kNaN}, {3}), true);
  backward(sum(add(maximum(a, b), mul(minimum(a, b), 10))));
  CHECK(values(a.grad()) == std::vector<double>{11, 11, 11});
  CHECK(values(b.grad()) == std::vector<double>{11, 11, 11});
  const Variable x(Tensor::from_vector<double>({kNaN, 1, 2, 3}, {4}), true);
  backward(sum(add(maximum(x, 2), mul(minimum(2, x), 10))));
  CHECK(values(x.grad()) == std::vector<double>{11, 10, 5.5, 1});
}

// Of positive numbers, so that sums lose nothing: half a unit in the last place and a little.
void check_rounded_once(const Tensor& actual, const Tensor& exact, int bits) {
  REQUIRE(actual.shape() == exact.shape());
  const std::vector<double> left = values(actual), right = values(exact);
  for (std::size_t i = 0; i < left.size(); ++i) {
    int exponent = 0;  // right[i] = fraction * 2^exponent, 0.5 <= fraction < 1; 0 for 0
    std::frexp(right[i], &exponent);
    const double half_unit = right[i] == 0 ? 0 : std::ldexp(1, exponent - 1 - bits);
    CHECK(std::abs(left[i] - right[i]) <= 1.002 * half_unit);
  }
}

TEST_CASE("addcmul, addcdiv: gradients of 16 bits are rounded once, also of what is broadcast") {
  using Operation = Variable (*)(const Variable&, const Variable&, const Variable&, double);
  for (const auto& [dtype, bits] : {std::pair(DType::kBF16, 8), std::pair(DType::kF16, 11)}) {
    for (const Operation operation : {Operation(addcmul), Operation(addcdiv)}) {
      for (const auto& [b, c] :
           {std::pair(Shape{3, 40}, Shape{3, 40}), std::pair(Shape{40}, Shape{3, 1}),
            std::pair(Shape{3, 1}, Shape{40}), std::pair(Shape{}, Shape{40})}) {
        INFO(dtype_name(dtype) << b.str() << c.str());
        std::vector<Variable> half, wide;
        for (const Shape& shape : {Shape{3, 40}, b, c}) {
          half.emplace_back(
              cast(irregular(shape, 0.5, 2, 0.1 + 0.2 * static_cast<double>(half.size())), dtype),
              true);
          wide.emplace_back(cast(half.back().tensor(), DType::kF64), true);
        }
        const Variable y = operation(half[0], half[1], half[2], 0.7),
                       exact = operation(wide[0], wide[1], wide[2], 0.7);
        const Tensor dy = cast(irregular({3, 40}, 0.5, 2, 0.9), dtype);
        const auto got = grad({&y, 1}, half, {.gradient = dy});
        const auto expected = grad({&exact, 1}, wide, {.gradient = cast(dy, DType::kF64)});
        for (std::size_t i = 0; i < got.size(); ++i) {
          CHECK(got[i].dtype() == dtype);
          check_rounded_once(abs(got[i].tensor()), abs(expected[i].tensor()), bits);
        }
      }
    }
  }
}

TEST_CASE("addcdiv: the gradient of a 16-bit divisor of integers is rounded once") {
  std::vector<std::int64_t> numbers(200);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::int64_t>(i) - 70;
  for (const auto& [dtype, bits] : {std::pair(DType::kBF16, 8), std::pair(DType::kF16, 11)}) {
    const Variable a(cast(irregular({200}), dtype)), c(cast(irregular({200}, 0.5, 2), dtype), true);
    const Variable b(Tensor::from_vector(numbers, {200}));
    const Variable exact_c(cast(c.tensor(), DType::kF64), true);
    const Variable y = addcdiv(a, b, c, 0.7),
                   exact = addcdiv(cast(a, DType::kF64), b, exact_c, 0.7);
    const auto got = grad({&y, 1}, {&c, 1}, {.gradient = ones({200}, {.dtype = dtype})});
    const auto expected =
        grad({&exact, 1}, {&exact_c, 1}, {.gradient = ones({200}, {.dtype = DType::kF64})});
    check_rounded_once(abs(got[0].tensor()), abs(expected[0].tensor()), bits);
  }
}

TEST_CASE("clamp, where, lerp, addcmul, addcdiv") {
  const Inputs three = {leaf({3, 4}), leaf({4}, 0.7, 2, 0.3), leaf({3, 1}, 0.2, 0.9, 0.6)};
  check_twice([](const Inputs& in) { return clamp(in[0], -0.4, 0.5); }, three);
  check_twice([](const Inputs& in) { return lerp(in[0], in[1], in[2]); }, three);
  check_twice([](const Inputs& in) { return lerp(in[0], 0.4, 0.3); }, {three[0]});
  check_twice([](const Inputs& in) { return addcmul(in[0], in[1], in[2], -1.5); }, three);
  check_twice([](const Inputs& in) { return addcdiv(in[0], in[2], in[1], 0.5); }, three);
  check_twice([](const Inputs& in) { return where(gt(in[0].tensor(), 0), in[1], in[2]); }, three);
  check_twice([](const Inputs& in) { return where(gt(in[0].tensor(), 0), in[0], 3); }, {three[0]});
  const auto tensors = [&](int i) { return three[static_cast<std::size_t>(i)].tensor(); };
  // The tensor operations' own values, also in 16 bits, where each step would round.
  for (DType dtype : {DType::kF64, DType::kBF16, DType::kF16}) {
    const auto in = [&](int i) { return Variable(cast(tensors(i), dtype), true); };
    const Variable a = in(0), b = in(1), c = in(2);
    CHECK(values(lerp(a, b, c)) == values(lerp(a.tensor(), b.tensor(), c.tensor())));
    CHECK(values(lerp(a, 3, 1)) == std::vector<double>(12, 3));
    CHECK(values(addcmul(a, b, c, 2)) == values(addcmul(a.tensor(), b.tensor(), c.tensor(), 2)));
    CHECK(values(addcdiv(a, b, c, 2)) == values(addcdiv(a.tensor(), b.tensor(), c.tensor(), 2)));
  }
  check_twice([](const Inputs& in) { return lerp(in[0], 0.4, in[2]); }, three);
  check_twice([](const Inputs& in) { return lerp(in[0], in[1], 0.3); }, three);
  const Variable edge(Tensor::from_vector<double>({-1, 0, 1, 2}, {4}), true);
  backward(sum(clamp(edge, 0, 1)));
  CHECK(values(edge.grad()) == std::vector<double>{0, 1, 1, 0});
  const Variable whole(arange(4));
  CHECK(clamp(whole, 1, 2).dtype() == DType::kI64);
  CHECK(clamp(whole, 1, 2.5).dtype() == DType::kF32);
}

TEST_CASE("gradients come in the dtype of their operand") {
  const Variable wide = leaf({3, 2}), narrow_operand(ones({2}, {.dtype = DType::kBF16}), true);
  const Variable inner = mul(narrow_operand, 2);
  DType seen = DType::kF64;
  inner.gradient_edge().node->add_pre_hook([&](Gradients& g) { seen = g[0].dtype(); });
  const Variable y = mul(wide, inner);
  CHECK(y.dtype() == DType::kF64);
  backward(sum(y));
  CHECK(seen == DType::kBF16);
  CHECK(narrow_operand.grad().dtype() == DType::kBF16);
  CHECK(values(wide.grad()) == std::vector<double>(6, 2.0));
}

TEST_CASE("operators and scalars") {
  const Inputs inputs = {leaf({3, 2}), leaf({3, 2}, 0.7, 2, 0.4)};
  check_twice(
      [](const Inputs& in) { return 3.0 * ((in[0] + in[1]) * in[0] - in[0] / in[1]) * 0.5 + 2.0; },
      inputs);
  const Variable y = 3.0 * inputs[0] + 2.0;
  CHECK(values(y) == values(add(mul(inputs[0].tensor(), 3), 2)));
}

TEST_CASE("cast: the gradient is cast back") {
  const Variable x = leaf({5});
  const Variable y = cast(x, DType::kF32);
  CHECK(y.dtype() == DType::kF32);
  backward(sum(square(y)));
  CHECK(x.grad().dtype() == DType::kF64);
  const std::vector<double> got = values(x.grad());
  const std::vector<double> from = values(x);
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(2 * from[i]).epsilon(1e-6));
  CHECK(cast(x, DType::kF64).same_as(x));
  CHECK(thrown<InvalidArgument>([&] { cast(x, DType::kI64); }) ==
        "[cast] i64 carries no gradient; cast the tensor instead");
  // Twice: d2/dx2 of the square is 2, also through the cast.
  const Variable s = sum(square(cast(x, DType::kF32)));
  const Variable first = sum(grad({&s, 1}, {&x, 1}, {.create_graph = true})[0]);
  CHECK(values(grad({&first, 1}, {&x, 1})[0]) == std::vector<double>(5, 2.0));
}

TEST_CASE("matmul: values and derivatives, any layout, empty sizes") {
  const std::vector<std::array<std::int64_t, 3>> sizes = {{1, 1, 1}, {3, 5, 2}, {7, 1, 4},
                                                          {0, 3, 2}, {3, 0, 2}, {3, 2, 0}};
  for (const auto& [m, k, n] : sizes) {
    INFO(m << " " << k << " " << n);
    const Inputs inputs = {leaf({m, k}), leaf({k, n}, -1, 1, 0.6)};
    CHECK(values(matmul(inputs[0], inputs[1])) ==
          values(matmul(inputs[0].tensor(), inputs[1].tensor())));
    check_twice([](const Inputs& in) { return matmul(in[0], in[1]); }, inputs);
  }
  const Inputs square_inputs = {leaf({3, 3}), leaf({3, 3}, -1, 1, 0.6)};
  check_twice([](const Inputs& in) { return matmul(transpose(in[0], 0, 1), in[1]); },
              square_inputs);
  check_twice([](const Inputs& in) { return matmul(in[0], transpose(in[1], 0, 1)); },
              square_inputs);
  check_twice([](const Inputs& in) { return matmul(in[0], in[0]); }, {square_inputs[0]});
  const Variable c(irregular({3, 3}));
  check_twice([&](const Inputs& in) { return matmul(c, in[0]); }, {square_inputs[0]});
  check_twice([&](const Inputs& in) { return matmul(in[0], c); }, {square_inputs[0]});
  // The gradient of a sum has strides of zero.
  check_twice([](const Inputs& in) { return sum(matmul(in[0], in[1])); }, square_inputs);
  CHECK_THROWS_AS(matmul(leaf({2, 3}), leaf({2, 3})), InvalidArgument);
}

TEST_CASE("linear: any leading dims, with and without bias") {
  for (const Shape& x_shape : std::vector<Shape>{{3}, {2, 3}, {2, 4, 3}, {0, 3}, {2, 0, 3}}) {
    INFO(x_shape.str());
    const Inputs inputs = {leaf(x_shape), leaf({5, 3}, -1, 1, 0.6), leaf({5}, -1, 1, 0.9)};
    const Variable y = linear(inputs[0], inputs[1], inputs[2]);
    CHECK(y.shape() == x_shape.with(x_shape.ndim() - 1, 5));
    CHECK(values(y) == values(linear(inputs[0].tensor(), inputs[1].tensor(), inputs[2].tensor())));
    check_twice([](const Inputs& in) { return linear(in[0], in[1], in[2]); }, inputs);
    check_twice([](const Inputs& in) { return linear(in[0], in[1], Variable()); },
                {inputs[0], inputs[1]});
  }
  const Inputs wb = {leaf({5, 3}), leaf({5})};
  const Variable x(irregular({4, 3}));
  check_twice([&](const Inputs& in) { return linear(x, in[0], in[1]); }, wb);
  check_twice([&](const Inputs& in) { return sum(linear(x, in[0], in[1])); }, wb);
  check_twice([&](const Inputs& in) { return linear(transpose(in[0], 0, 1), in[1], Variable()); },
              {leaf({3, 4}), leaf({5, 3})});
  CHECK_THROWS_AS(linear(x, leaf({5, 4}), Variable()), InvalidArgument);
}

TEST_CASE("linear: no gradient of weight and bias is lost for an input of no rows") {
  const Variable x = leaf({0, 3});
  const Variable w = leaf({5, 3});
  const Variable b = leaf({5});
  backward(sum(linear(x, w, b)));
  CHECK(values(w.grad()) == std::vector<double>(15, 0.0));
  CHECK(values(b.grad()) == std::vector<double>(5, 0.0));
  CHECK(x.grad().shape() == Shape{0, 3});
}

TEST_CASE("linear in f32: written into the gradient, and added to it") {
  const auto f32 = [](const Shape& shape) {
    return Variable(cast(irregular(shape), DType::kF32), true);
  };
  const Variable w = f32({5, 3});
  const Variable b = f32({5});
  const Variable x = f32({4, 3});
  backward(sum(square(linear(x, w, b))));
  const std::vector<double> once = values(w.grad());
  const std::vector<double> once_b = values(b.grad());
  backward(sum(square(linear(x, w, b))));
  for (std::size_t i = 0; i < once.size(); ++i) CHECK(values(w.grad())[i] == Approx(2 * once[i]));
  for (std::size_t i = 0; i < once_b.size(); ++i)
    CHECK(values(b.grad())[i] == Approx(2 * once_b[i]));
}

TEST_CASE("cross entropy: every reduction") {
  const Tensor targets = Tensor::from_vector<std::int64_t>({2, 0, 3, 3, 1}, {5});
  const Inputs logits = {leaf({5, 4}, -3, 3)};
  const std::vector<double> rows = values(cross_entropy(logits[0], targets, LossReduction::kNone));
  CHECK(rows == values(cross_entropy_rows(logits[0].tensor(), targets).loss));
  double total = 0;
  for (double row : rows) total += row;
  CHECK(cross_entropy(logits[0], targets, LossReduction::kSum).item<double>() == Approx(total));
  CHECK(cross_entropy(logits[0], targets).item<double>() == Approx(total / 5));
  for (LossReduction reduction :
       {LossReduction::kNone, LossReduction::kMean, LossReduction::kSum}) {
    check_once([&](const Inputs& in) { return cross_entropy(in[0], targets, reduction); }, logits);
    check_once([&](const Inputs& in) { return square(cross_entropy(in[0], targets, reduction)); },
               logits);
    check_once(
        [&](const Inputs& in) { return cross_entropy(transpose(in[0], 0, 1), targets, reduction); },
        {leaf({4, 5}, -3, 3)});
  }
}

TEST_CASE("cross entropy: no rows, and targets that are no class") {
  const Tensor none = Tensor::from_vector<std::int64_t>({}, {0});
  const Variable logits = leaf({0, 4});
  CHECK(std::isnan(cross_entropy(logits, none).item<double>()));
  const Variable total = cross_entropy(logits, none, LossReduction::kSum);
  CHECK(total.item<double>() == 0);
  backward(total);
  CHECK(logits.grad().shape() == Shape{0, 4});
  backward(cross_entropy(logits, none));
  const Tensor wrong = Tensor::from_vector<std::int64_t>({0, 4}, {2});
  CHECK_THROWS_AS(cross_entropy(leaf({2, 4}), wrong).item<double>(), InvalidArgument);
}

TEST_CASE("operations on variables without gradients record nothing") {
  const Variable x(irregular({2, 3}));
  for (const Unary& op : kUnary) CHECK_FALSE(op.differentiable(x).requires_grad());
  for (const Binary& op : kBinary) CHECK_FALSE(op.differentiable(x, x).requires_grad());
  CHECK_FALSE(linear(x, x, Variable()).requires_grad());
  CHECK_FALSE(sum(x).requires_grad());
}

}  // namespace
}  // namespace tessera::testing
