// The derivative of a norm whose operand is used again: its kernel adds the other gradients, with
// the bits of an addition afterwards.
#include <catch2/catch.hpp>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/ops/norm.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

constexpr DType kDTypes[] = {DType::kF64, DType::kF32, DType::kBF16, DType::kF16};

int launches(const ExecutionTrace& trace, const std::string& name) {
  int count = 0;
  for (const KernelRecord& record : trace.all<KernelRecord>()) count += record.name == name;
  return count;
}

// The gradient of x where y is a norm of x and `others` are further gradients of x, which arrive
// before the norm's.
Tensor separately(const Tensor& x, const Tensor& dy, const std::vector<Tensor>& others) {
  const NormResult forward = layer_norm_forward(x, Tensor(), Tensor());
  Tensor sum = others.front();
  for (std::size_t i = 1; i < others.size(); ++i) sum = add(sum, others[i]);
  return add(sum, row_norm_backward(dy, x, Tensor(), forward.statistics).x);
}

TEST_CASE("a norm's kernel adds the gradients that its operand has already") {
  for (const DType dtype : kDTypes) {
    for (const std::int64_t width : {1, 7, 64, 1031}) {
      INFO(dtype_name(dtype) << " " << width);
      const Tensor x = cast(irregular({3, width}), dtype);
      const Tensor dy = cast(irregular({3, width}, -2, 2, 0.3), dtype);
      const Tensor a = cast(irregular({3, width}, -1, 3, 0.7), dtype), b = mul(a, 0.37);
      const Variable leaf(x, true);
      const Variable y = layer_norm(leaf, Variable(), Variable());
      const Variable first = leaf * 1.0, second = leaf * 1.0;
      const std::vector<Variable> roots = {y, first, second};
      const std::vector<Tensor> gradients = {dy, a, b};
      ExecutionTrace trace;
      {
        const TraceScope recording(trace);
        backward(roots, gradients);
      }
      // In a pass the node that was recorded last runs first.
      CHECK(values(leaf.grad()) == values(separately(x, dy, {b, a})));
      CHECK(launches(trace, "row_norm_backward") == 1);
      CHECK(launches(trace, "binary") == 3);  // the derivatives of both products, and b + a
    }
  }
}

TEST_CASE("RMS and group norm, and the norm of a sum, add too") {
  const Tensor x = irregular({2, 4, 3}), dy = irregular({2, 4, 3}, -1, 1, 0.2),
               other = irregular({2, 4, 3}, -1, 1, 0.6);
  const auto gradient = [&](const auto& norm) {
    const Variable leaf(x, true);
    const std::vector<Variable> roots = {norm(leaf), leaf * 1.0};
    const std::vector<Tensor> gradients = {dy, other};
    backward(roots, gradients);
    return values(leaf.grad());
  };
  CHECK(
      gradient([](const Variable& v) { return rms_norm(v, Variable()); }) ==
      values(add(other,
                 row_norm_backward(dy, x, Tensor(), rms_norm_forward(x, Tensor()).statistics).x)));
  const NormResult groups = group_norm_forward(x, Tensor(), Tensor(), {.groups = 2});
  CHECK(gradient([](const Variable& v) {
          return group_norm(v, Variable(), Variable(), {.groups = 2});
        }) ==
        values(add(other, row_norm_backward(dy, x, Tensor(), groups.statistics, {.groups = 2}).x)));

  const Variable a(x, true), b(other, true);
  const AddNorm h = add_layer_norm(a, b, Variable(), Variable());
  const std::vector<Variable> roots = {h.y, h.sum * 1.0};
  const std::vector<Tensor> gradients = {dy, other};
  ExecutionTrace trace;
  {
    const TraceScope recording(trace);
    backward(roots, gradients);
  }
  CHECK(values(a.grad()) == values(separately(add(x, other), dy, {other})));
  CHECK(values(b.grad()) == values(a.grad()));
}

TEST_CASE(
    "a gradient of another dtype, a graph of the gradient, and a hook on the norm add apart") {
  const Tensor x = cast(irregular({3, 8}), DType::kF32), dy = cast(irregular({3, 8}), DType::kF32);
  const Tensor wide = irregular({3, 8});
  const Variable leaf(x, true);
  const std::vector<Variable> roots = {layer_norm(leaf, Variable(), Variable()),
                                       cast(leaf, DType::kF64)};
  const std::vector<Tensor> gradients = {dy, wide};
  backward(roots, gradients);
  CHECK(values(leaf.grad()) == values(separately(x, dy, {cast(wide, DType::kF32)})));

  const Variable twice(x, true);
  const Variable y = layer_norm(twice, Variable(), Variable());
  Gradients seen;
  y.gradient_edge().node->add_post_hook([&](const Gradients& all) { seen = all; });
  const std::vector<Variable> both = {y, twice * 1.0};
  const std::vector<Tensor> two = {dy, dy};
  backward(both, two);
  REQUIRE(seen.size() == 3);
  const NormResult forward = layer_norm_forward(x, Tensor(), Tensor());
  const Tensor alone = row_norm_backward(dy, x, Tensor(), forward.statistics).x;
  CHECK(values(seen[0]) == values(alone));
  CHECK(values(twice.grad()) == values(add(dy, alone)));

  check_twice([](const Inputs& in) { return layer_norm(in[0], in[1], in[2]) * in[0]; },
              {testing::leaf({2, 5}), testing::leaf({5}, 0.5, 1.5), testing::leaf({5})});
}

TEST_CASE("a captured gradient is the whole sum, and a frozen operand takes none") {
  const Tensor x = irregular({3, 8}), dy = irregular({3, 8}, -1, 1, 0.2),
               other = irregular({3, 8}, -1, 1, 0.6);
  const Variable leaf(x, true), inner = leaf * 2.0, weight(irregular({8}), true);
  const Variable y = layer_norm(inner, weight, Variable()) + inner;
  const Variable outputs[] = {y};
  const Variable inputs[] = {inner};
  const std::vector<Variable> captured = grad(outputs, inputs, {.gradient = dy});
  const NormResult forward = layer_norm_forward(inner.tensor(), weight.tensor(), Tensor());
  CHECK(values(captured[0]) ==
        values(
            add(dy, row_norm_backward(dy, inner.tensor(), weight.tensor(), forward.statistics).x)));

  const Variable frozen(x);
  backward(layer_norm(frozen, weight, Variable()) * frozen, {.gradient = other});
  CHECK_FALSE(frozen.grad().defined());
  CHECK(weight.grad().defined());
}

TEST_CASE("row_norm_backward: a gradient to add must be like x") {
  const Tensor x = irregular({3, 8});
  const NormStatistics statistics = layer_norm_forward(x, Tensor(), Tensor()).statistics;
  CHECK_THROWS_AS(row_norm_backward(x, x, Tensor(), statistics, {}, irregular({3, 7})),
                  InvalidArgument);
  CHECK_THROWS_AS(
      row_norm_backward(x, x, Tensor(), statistics, {}, cast(irregular({3, 8}), DType::kF32)),
      InvalidArgument);
  // Without a gradient of x nothing is added.
  CHECK_FALSE(row_norm_backward(x, x, Tensor(), statistics, {.needs_x = false}, x).x.defined());
}

}  // namespace
}  // namespace tessera::testing
