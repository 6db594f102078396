// LayerNorm and RMSNorm called with a residual: the norm of a sum, and the sum.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tessera/autograd/ops/autocast.h"
#include "tessera/nn/layers/norm.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/nn/recompute.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/nn/layers/layer_support.h"

namespace tessera {
namespace {

using testing::all_equal;
using testing::random_input;
using testing::thrown;

// Irregular parameters instead of ones and zeros.
void scramble(nn::Module& module) {
  nn::initialize(module);
  std::uint64_t seed = 10;
  for (const nn::Parameter& p : module.parameters())
    copy_(p.local().tensor(), random_input(p.shape(), seed++).tensor());
}

Tensor random_tensor(const Shape& shape, std::uint64_t seed, DType dtype) {
  return cast(random_input(shape, seed).tensor(), dtype);
}

// As a caller would without the second form.
template <class L>
AddNorm apart(L& layer, const Variable& x, const Variable& residual) {
  const Variable sum = x + residual;
  return {.y = layer(sum), .sum = sum};
}

// y, the sum, and the gradients of x, residual and parameters where a loss takes both results.
template <class L>
std::vector<Tensor> trained(L& layer, const Tensor& x, const Tensor& residual, bool in_one_call) {
  std::vector<Variable> leaves = {Variable(x, true), Variable(residual, true)};
  const AddNorm h = in_one_call ? layer(leaves[0], leaves[1]) : apart(layer, leaves[0], leaves[1]);
  for (const nn::Parameter& p : layer.parameters()) leaves.push_back(p.value());
  const Variable loss = sum(cast(sin(h.y) * h.sum, DType::kF64));
  std::vector<Tensor> out = {h.y.tensor(), h.sum.tensor()};
  for (const Variable& gradient : grad({&loss, 1}, leaves)) out.push_back(gradient.tensor());
  return out;
}

template <class L>
void check_same(L& layer, const Tensor& x, const Tensor& residual) {
  INFO(layer.type_name() << ", " << dtype_name(x.dtype()) << " and "
                         << dtype_name(residual.dtype()));
  const std::vector<Tensor> one = trained(layer, x, residual, true);
  const std::vector<Tensor> two = trained(layer, x, residual, false);
  REQUIRE(one.size() == two.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    INFO("tensor " << i);
    CHECK(all_equal(one[i], two[i]));
  }
}

template <class Function>
std::size_t kernels_of(const Function& function) {
  ExecutionTrace trace;
  {
    const TraceScope recording(trace);
    function();
  }
  return trace.all<KernelRecord>().size();
}

TEST_CASE("a norm with a residual has the bits of add() and then the norm, gradients too") {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    nn::LayerNorm layer({.shape = {7}, .eps = 0.1, .dtype = dtype});
    nn::LayerNorm plain({.shape = {3, 7}, .affine = false});
    nn::RMSNorm rms({.shape = {3, 7}, .dtype = dtype});
    nn::RMSNorm wide({.shape = {7}, .eps = 0.1, .dtype = compute_dtype(dtype)});
    const Tensor x = random_tensor({2, 3, 7}, 1, dtype);
    const Tensor residual = random_tensor({3, 2, 7}, 2, dtype).transpose(0, 1);
    for (nn::Module* module : std::vector<nn::Module*>{&layer, &plain, &rms, &wide})
      scramble(*module);
    for (const bool recomputed : {false, true}) {
      nn::recompute(layer, recomputed);
      nn::recompute(rms, recomputed);
      check_same(layer, x, residual);
      check_same(plain, x, residual);
      check_same(rms, x, residual);
      check_same(wide, x, residual);
    }
    const Variable a(contiguous(x)), b(contiguous(residual));
    CHECK(kernels_of([&] { apart(layer, a, b); }) == kernels_of([&] { layer(a, b); }) + 1);
    CHECK(kernels_of([&] { apart(rms, a, b); }) == kernels_of([&] { rms(a, b); }) + 1);
    CHECK(kernels_of([&] { plain(a, b); }) == 1);
    const AddNorm none = layer(Variable(x.slice(0, 0, 0)), Variable(x.slice(0, 0, 0)));
    CHECK(none.y.shape() == Shape{0, 3, 7});
    CHECK(none.sum.shape() == Shape{0, 3, 7});
  }
}

// As the parts of a model under mixed precision may leave them.
TEST_CASE("a norm with a residual of another dtype adds as add() does, also under autocast") {
  nn::LayerNorm layer({.shape = {7}});
  nn::RMSNorm rms({.shape = {7}});
  scramble(layer);
  scramble(rms);
  const Tensor f32 = random_tensor({5, 7}, 1, DType::kF32);
  const Tensor bf16 = random_tensor({5, 7}, 2, DType::kBF16);
  const Tensor f16 = random_tensor({5, 7}, 3, DType::kF16);
  const auto check_all = [&] {
    for (const auto& [x, residual] : {std::pair(f32, bf16), std::pair(f16, f32)}) {
      check_same(layer, x, residual);
      check_same(rms, x, residual);
    }
    check_same(layer, bf16, f16);
    CHECK(layer(Variable(f32), Variable(bf16)).sum.dtype() == DType::kF32);
    CHECK(rms(Variable(bf16), Variable(f16)).y.dtype() == DType::kF32);
  };
  check_all();
  const AutocastGuard autocast(DType::kBF16);
  check_all();
  check_same(rms, bf16, bf16);
  const AddNorm h = rms(Variable(bf16), Variable(bf16));
  CHECK(h.sum.dtype() == DType::kBF16);
  CHECK(h.y.dtype() == DType::kF32);
}

template <class L>
void check_hooks() {
  L layer({.shape = {4}, .eps = 0.01, .dtype = DType::kF64});
  L reference({.shape = {4}, .eps = 0.01, .dtype = DType::kF64});
  for (L* each : {&layer, &reference}) scramble(*each);
  std::vector<Tensor> seen;
  layer.register_forward_pre_hook([&](nn::Module&, const nn::VisitVariables& arguments) {
    arguments([&](Variable& v) {
      seen.push_back(v.tensor());
      v = v * 2.0;
    });
  });
  layer.register_forward_hook([&](nn::Module&, const nn::VisitVariables* results) {
    (*results)([&](Variable& v) {
      seen.push_back(v.tensor());
      v = v * 4.0;
    });
  });
  Gradients of_arguments, of_results;
  layer.register_full_backward_hook(
      [&](nn::Module&, Gradients& arguments, const Gradients& results) {
        of_arguments = arguments;
        of_results = results;
      });
  const Variable x = random_input({3, 4}, 1, true), residual = random_input({3, 4}, 2, true);
  const AddNorm h = layer(x, residual), expected = apart(reference, x * 2.0, residual * 2.0);
  REQUIRE(seen.size() == 4);
  CHECK(all_equal(seen[0], x.tensor()));
  CHECK(all_equal(seen[1], residual.tensor()));
  CHECK(all_equal(seen[2], expected.y.tensor()));
  CHECK(all_equal(seen[3], expected.sum.tensor()));
  CHECK(all_equal(h.y.tensor(), mul(expected.y.tensor(), 4.0)));
  CHECK(all_equal(h.sum.tensor(), mul(expected.sum.tensor(), 4.0)));
  backward(sum(h.y * 5.0 + h.sum * 7.0));
  REQUIRE((of_arguments.size() == 2 && of_results.size() == 2));
  CHECK(all_equal(of_results[0].tensor(), full({3, 4}, 5.0, {.dtype = DType::kF64})));
  CHECK(all_equal(of_results[1].tensor(), full({3, 4}, 7.0, {.dtype = DType::kF64})));
  CHECK(all_equal(x.grad(), mul(of_arguments[0].tensor(), 2.0)));
  CHECK(all_equal(residual.grad(), mul(of_arguments[1].tensor(), 2.0)));
}

TEST_CASE("hooks see and replace both arguments and both results of a norm with a residual") {
  check_hooks<nn::LayerNorm>();
  check_hooks<nn::RMSNorm>();
}

template <class L>
void check_derivatives(typename L::Options options) {
  options.dtype = DType::kF64;
  L layer(options);
  scramble(layer);
  const Variable x = random_input({3, 2, 5}, 1, true), residual = random_input({3, 2, 5}, 2, true);
  const auto both = [](const AddNorm& h) { return h.y * square(h.sum); };
  const GradCheckResult by_input = grad_check(
      [&](const std::vector<Variable>& in) { return both(layer(in[0], in[1])); }, {x, residual});
  INFO(by_input.message);
  CHECK(by_input.passed);
  const GradCheckResult by_parameter =
      testing::parameter_grad_check(layer, [&] { return both(layer(x, residual)); });
  INFO(by_parameter.message);
  CHECK(by_parameter.passed);
}

TEST_CASE("the derivatives of a norm with a residual, through the norm and the sum") {
  check_derivatives<nn::LayerNorm>({.shape = {5}, .eps = 0.01});
  check_derivatives<nn::LayerNorm>({.shape = {2, 5}, .eps = 0.01, .bias = false});
  check_derivatives<nn::RMSNorm>({.shape = {5}, .eps = 0.01});
  check_derivatives<nn::RMSNorm>({.shape = {2, 5}, .eps = 0.01, .affine = false});
}

TEST_CASE("norms name a residual that does not fit") {
  nn::Sequential model;
  auto& rms = model.add<nn::RMSNorm>({.shape = {2}});
  nn::LayerNorm layer({.shape = {3, 2}});
  nn::initialize(model);
  nn::initialize(layer, {.prefix = "norm."});
  const auto zero = [](const Shape& shape, DType dtype = DType::kF32) {
    return Variable(zeros(shape, {.dtype = dtype}));
  };
  CHECK(thrown<InvalidArgument>([&] {
          rms(zero({4, 2}), zero({1, 2}));
        }) ==
        "[nn.RMSNorm] \"0\": the input is [4, 2], the residual [1, 2]: they are added, so they "
        "must have one shape");
  CHECK(thrown<InvalidArgument>([&] {
          layer(zero({3, 2}), zero({2}));
        }) ==
        "[nn.LayerNorm] the root module: the input is [3, 2], the residual [2]: they are added, so "
        "they must have one shape");
  CHECK(thrown<InvalidArgument>([&] {
          rms(zero({4, 3}), zero({4, 3}));
        }) == "[nn.RMSNorm] \"0\": expected an input that ends in [2], got [4, 3]");
  CHECK(thrown<InvalidArgument>([&] {
          layer(zero({3, 2}), zero({3, 2}, DType::kF64));
        }) ==
        "[nn.LayerNorm] \"norm.weight\" is f32, the input f64: cast the input, or build the layer "
        "with .dtype");
  CHECK(thrown<InvalidArgument>([&] {
          rms(zero({4, 2}, DType::kF64), zero({4, 2}, DType::kF64));
        }).find("is f32, the input f64") != std::string::npos);
}

}  // namespace
}  // namespace tessera
