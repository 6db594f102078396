// SwiGLU: the bits of silu and a product, and their derivatives.
#include <catch2/catch.hpp>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/activations.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

constexpr DType kDTypes[] = {DType::kF64, DType::kF32, DType::kBF16, DType::kF16};

Tensor made(const Shape& shape, DType dtype, double seed) {
  return cast(irregular(shape, -6, 6, seed), dtype);
}

TEST_CASE("swiglu has the bits of silu and a product, forward and back") {
  for (const DType dtype : kDTypes) {
    // One element, tails of runs, several pieces of a thread, and enough for tables.
    for (const Shape& shape :
         {Shape{}, Shape{1}, Shape{3, 5}, Shape{0, 4}, Shape{1031}, Shape{3, 16411}}) {
      INFO(dtype_name(dtype) << " " << shape.str());
      const Tensor gate = made(shape, dtype, 0.1), up = made(shape, dtype, 0.5),
                   dy = made(shape, dtype, 0.8);
      CHECK(values(swiglu(gate, up)) == values(mul(silu(gate), up)));
      const SwigluGradients both = swiglu_backward(dy, gate, up);
      CHECK(values(both.gate) == values(silu_backward(mul(dy, up), gate)));
      CHECK(values(both.up) == values(mul(dy, silu(gate))));
      const SwigluGradients one = swiglu_backward(dy, gate, up, {.needs_gate = false});
      CHECK_FALSE(one.gate.defined());
      CHECK(values(one.up) == values(both.up));
      const SwigluGradients other = swiglu_backward(dy, gate, up, {.needs_up = false});
      CHECK_FALSE(other.up.defined());
      CHECK(values(other.gate) == values(both.gate));
    }
  }
}

TEST_CASE("swiglu: operands with strides, or that begin anywhere") {
  for (const DType dtype : kDTypes) {
    const Tensor wide = made({41, 67}, dtype, 0.1), more = made({41, 67}, dtype, 0.3);
    const auto check = [&](const Tensor& gate, const Tensor& up) {
      CHECK(values(swiglu(gate, up)) == values(mul(silu(contiguous(gate)), contiguous(up))));
    };
    check(wide.transpose(0, 1), more.transpose(0, 1));
    check(wide.slice(1, 1, 67, 2), more.slice(1, 0, 66, 2));
    check(wide.view({-1}).slice(0, 1, 2000), more.view({-1}).slice(0, 3, 2002));
  }
  const Tensor gate = made({4}, DType::kF32, 0.1);
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor ends = Tensor::from_vector<double>({-infinity, infinity, std::nan(""), 0}, {4});
  const std::vector<double> y = values(swiglu(ends, irregular({4})));
  CHECK(y[0] == 0);
  CHECK(std::isinf(y[1]));
  CHECK(std::isnan(y[2]));
  CHECK(y[3] == 0);
}

TEST_CASE("swiglu: the derivative, twice, and of one operand") {
  check_twice([](const Inputs& in) { return swiglu(in[0], in[1]); }, {leaf({3, 5}), leaf({3, 5})});
  check_twice([](const Inputs& in) { return swiglu(in[0], in[0]); }, {leaf({4})});
  const Variable gate = leaf({6}), up = leaf({6}, -1, 1, 0.7), fixed(irregular({6}));
  backward(sum(swiglu(gate, up)));
  const Variable a = leaf({6}), b = leaf({6}, -1, 1, 0.7);
  backward(sum(silu(a) * b));
  CHECK(values(gate.grad()) == values(a.grad()));
  CHECK(values(up.grad()) == values(b.grad()));
  backward(sum(swiglu(fixed, up)));
  CHECK_FALSE(fixed.grad().defined());
}

TEST_CASE("swiglu: errors") {
  const Tensor x = irregular({2, 3});
  CHECK_THROWS_AS(swiglu(x, irregular({3})), InvalidArgument);
  CHECK_THROWS_AS(swiglu(x, cast(x, DType::kF32)), InvalidArgument);
  CHECK_THROWS_AS(swiglu(cast(x, DType::kI64), cast(x, DType::kI64)), InvalidArgument);
  CHECK_THROWS_AS(swiglu(Tensor(), x), InvalidArgument);
  CHECK_THROWS_AS(swiglu_backward(irregular({2, 2}), x, x), InvalidArgument);
}

}  // namespace
}  // namespace tessera::testing
