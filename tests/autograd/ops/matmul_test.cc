// Products of batches and vectors, linear layers with an activation, and slots of a wider dtype:
// values against the tensor operations, derivatives against differences.
#include "tessera/autograd/ops/matmul.h"

#include <catch2/catch.hpp>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/gradient_sink.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

TEST_CASE("matmul: batches, broadcast either way, vectors, empty extents") {
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {{2, 3, 4}, {2, 4, 2}}, {{3, 4}, {2, 4, 2}},
      {{2, 3, 4}, {4, 2}},    {{2, 1, 2, 3}, {3, 3, 2}},
      {{1, 2, 3}, {2, 3, 1}}, {{3}, {3}},
      {{2, 3}, {3}},          {{3}, {3, 2}},
      {{3}, {2, 3, 2}},       {{2, 2, 3}, {3}},
      {{0, 2, 3}, {3, 2}},    {{2, 2, 0}, {0, 3}},
      {{2, 2, 3}, {2, 3, 0}}, {{2, 2, 1, 3}, {2, 2, 3, 1}}};
  for (const auto& [a, b] : shapes) {
    INFO(a.str() << b.str());
    const Inputs inputs = {leaf(a), leaf(b, -1, 1, 0.6)};
    CHECK(values(matmul(inputs[0], inputs[1])) ==
          values(matmul(inputs[0].tensor(), inputs[1].tensor())));
    check_twice([](const Inputs& in) { return matmul(in[0], in[1]); }, inputs);
  }
}

// Their strides are 0, which is no repetition.
TEST_CASE("products of no elements: gradients go into the slots of leaves") {
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {{3, 2, 0}, {0, 5}},    {{3, 2, 0}, {3, 0, 5}}, {{3, 0, 4}, {3, 4, 5}},
      {{0, 2, 4}, {0, 4, 5}}, {{3, 2, 4}, {3, 4, 0}}, {{2, 3, 2, 0}, {2, 3, 0, 5}},
      {{2, 0}, {3, 0, 4}}};
  for (const auto& [a, b] : shapes) {
    INFO(a.str() << b.str());
    const auto check = [&](Variable (*product)(const Variable&, const Variable&)) {
      const Inputs inputs = {leaf(a), leaf(b)};
      for (int pass = 0; pass < 2; ++pass) backward(sum(product(inputs[0], inputs[1])));
      for (const Variable& input : inputs) {
        CHECK(input.grad().shape() == input.shape());
        CHECK(values(input.grad()) == values(zeros(input.shape())));
      }
    };
    check(matmul);
    if (a.ndim() == 3 && b.ndim() == 3) check(bmm);
  }
}

TEST_CASE("matmul of batches: any layout, one operand constant, one operand twice") {
  const Inputs inputs = {leaf({2, 4, 3}), leaf({3, 2, 2}, -1, 1, 0.6)};
  check_twice(
      [](const Inputs& in) { return matmul(transpose(in[0], 1, 2), transpose(in[1], 0, 1)); },
      {leaf({2, 3, 4}), leaf({3, 2, 5}, -1, 1, 0.6)});
  const Variable c(irregular({3, 5}));
  check_twice([&](const Inputs& in) { return matmul(in[0], c); }, {inputs[0]});
  check_twice([&](const Inputs& in) { return matmul(c, in[0]); }, {leaf({2, 5, 3})});
  check_twice([](const Inputs& in) { return matmul(in[0], transpose(in[0], 1, 2)); }, {inputs[0]});
  // The gradient of a sum has strides of zero.
  check_twice([](const Inputs& in) { return sum(matmul(in[0], in[1])); },
              {inputs[0], leaf({2, 3, 2})});
}

TEST_CASE("bmm, addmm, mv, dot, outer") {
  const auto check = [](const TestedFunction& function, const Inputs& inputs, const Tensor& value) {
    CHECK(values(function(inputs)) == values(value));
    check_twice(function, inputs);
  };
  const Inputs b = {leaf({2, 3, 4}), leaf({2, 4, 2}, -1, 1, 0.6)};
  check([](const Inputs& in) { return bmm(in[0], in[1]); }, b, bmm(b[0].tensor(), b[1].tensor()));
  const AddmmOptions options = {.alpha = 0.5, .beta = -2};
  for (const Shape& shape : {Shape{}, Shape{2}, Shape{3, 1}, Shape{3, 2}}) {
    const Inputs in = {leaf(shape), leaf({3, 4}, -1, 1, 0.3), leaf({4, 2}, -1, 1, 0.6)};
    check([&](const Inputs& in) { return addmm(in[0], in[1], in[2], options); }, in,
          addmm(in[0].tensor(), in[1].tensor(), in[2].tensor(), options));
  }
  const Inputs m = {leaf({3, 4}), leaf({4}, -1, 1, 0.6)}, v = {leaf({4}), leaf({4}, -1, 1, 0.6)},
               o = {leaf({3}), leaf({4}, -1, 1, 0.6)};
  check([](const Inputs& in) { return mv(in[0], in[1]); }, m, mv(m[0].tensor(), m[1].tensor()));
  check([](const Inputs& in) { return dot(in[0], in[1]); }, v, dot(v[0].tensor(), v[1].tensor()));
  check([](const Inputs& in) { return outer(in[0], in[1]); }, o,
        outer(o[0].tensor(), o[1].tensor()));
  CHECK(thrown<InvalidArgument>([&] { mv(v[0], v[1]); }) ==
        "[mv] needs a matrix and a vector, got [4] and [4]");
}

const std::vector<ActivationKind> kActivations = {ActivationKind::kNone, ActivationKind::kRelu,
                                                  ActivationKind::kGelu, ActivationKind::kGeluTanh,
                                                  ActivationKind::kSilu};

Variable unfused(const Variable& x, ActivationKind activation) {
  switch (activation) {
    case ActivationKind::kNone:
      return x;
    case ActivationKind::kRelu:
      return relu(x);
    case ActivationKind::kGelu:
      return gelu(x);
    case ActivationKind::kGeluTanh:
      return gelu_tanh(x);
    case ActivationKind::kSilu:
      return silu(x);
  }
  return {};
}

TEST_CASE("linear with an activation: values, derivatives, and the gradients of its parts") {
  for (ActivationKind activation : kActivations) {
    for (const Shape& shape : {Shape{3}, Shape{2, 3}, Shape{2, 4, 3}, Shape{0, 3}}) {
      INFO("activation " << static_cast<int>(activation) << shape.str());
      const Inputs inputs = {leaf(shape), leaf({5, 3}, -1, 1, 0.6), leaf({5}, -1, 1, 0.9)};
      const auto fused = [&](const Inputs& in) { return linear(in[0], in[1], in[2], activation); };
      const auto parts = [&](const Inputs& in) {
        return unfused(linear(in[0], in[1], in[2]), activation);
      };
      CHECK(values(fused(inputs)) == values(parts(inputs)));
      check_twice(fused, inputs);
      check_twice([&](const Inputs& in) { return linear(in[0], in[1], Variable(), activation); },
                  {inputs[0], inputs[1]});
      const std::vector<Variable> wanted(inputs.begin(), inputs.end());
      const Variable a = sum(square(fused(inputs))), b = sum(square(parts(inputs)));
      const std::vector<Variable> got = grad({&a, 1}, wanted), expected = grad({&b, 1}, wanted);
      for (std::size_t i = 0; i < wanted.size(); ++i) CHECK(values(got[i]) == values(expected[i]));
    }
  }
  const Variable x(irregular({2, 3}));
  for (ActivationKind activation : kActivations)
    CHECK_FALSE(linear(x, x, Variable(), activation).requires_grad());
  // Only the input, or only the bias.
  const Variable w(irregular({5, 3}));
  for (ActivationKind activation : kActivations) {
    check_twice([&](const Inputs& in) { return linear(in[0], w, Variable(), activation); },
                {leaf({2, 3})});
    check_twice([&](const Inputs& in) { return linear(x, w, in[0], activation); }, {leaf({5})});
  }
}

// Offers slots of one dtype, and counts what arrives otherwise.
class WideSink final : public GradientSink {
 public:
  explicit WideSink(const Shape& shape) : total(zeros(shape)) {}
  std::optional<GradientSlot> take_slot(DType storable) override {
    if (storable != DType::kF32) return std::nullopt;
    ++taken;
    return GradientSlot{.tensor = total, .beta = taken == 1 ? 0.0 : 1.0};
  }
  void accumulate(const Tensor&) override { ++accumulated; }

  Tensor total;
  int taken = 0;
  int accumulated = 0;
};

struct Wide {
  Wide(DType dtype, const Tensor& from)
      : variable(cast(from, dtype), true), sink(std::make_shared<WideSink>(from.shape())) {
    variable.set_gradient_sink(sink);
  }
  Variable variable;
  std::shared_ptr<WideSink> sink;
};

TEST_CASE("gradients of 16-bit products go into slots of f32, unrounded") {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    Wide weight(dtype, irregular({5, 3})), bias(dtype, irregular({5}));
    const Variable x(cast(irregular({2, 7, 3}), dtype));
    const Tensor dy = cast(irregular({2, 7, 5}, -1, 1, 0.4), dtype);
    const auto pass = [&] {
      backward(sum(mul(linear(x, weight.variable, bias.variable), Variable(dy))));
    };
    pass();
    CHECK(weight.sink->taken == 1);
    CHECK(bias.sink->taken == 1);
    const auto wide = [](const Tensor& t) { return cast(t, DType::kF64); };
    const Tensor rows = wide(dy).view({14, 5}), left = wide(x.tensor()).view({14, 3});
    const std::vector<double> expected = values(matmul(rows.transpose(0, 1), left)),
                              sums = values(sum(rows, {0}));
    const auto check = [](const Tensor& got, const std::vector<double>& exact, double factor) {
      const std::vector<double> all = values(got);
      for (std::size_t i = 0; i < all.size(); ++i)
        CHECK(all[i] == Approx(factor * exact[i]).margin(1e-5));
    };
    check(weight.sink->total, expected, 1);
    check(bias.sink->total, sums, 1);
    pass();
    check(weight.sink->total, expected, 2);
    check(bias.sink->total, sums, 2);
    CHECK(weight.sink->accumulated + bias.sink->accumulated == 0);

    Wide right(dtype, irregular({3, 4}));
    backward(sum(matmul(x, right.variable)));
    CHECK(right.sink->taken == 1);
    const Tensor ones_like = cast(full({14, 4}, 1), DType::kF64);
    check(right.sink->total, values(matmul(left.transpose(0, 1), ones_like)), 1);
  }
}

TEST_CASE("a batched product writes the slot of a leaf that was not broadcast") {
  for (bool broadcast : {false, true}) {
    Wide left(DType::kF32, irregular(broadcast ? Shape{1, 3, 4} : Shape{2, 3, 4}));
    const Variable right(cast(irregular({2, 4, 5}), DType::kF32));
    backward(sum(matmul(left.variable, right)));
    CHECK(left.sink->taken == (broadcast ? 0 : 1));
    CHECK(left.sink->accumulated == (broadcast ? 1 : 0));
  }
}

}  // namespace
}  // namespace tessera::testing
