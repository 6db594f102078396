// Products that are made of matrix products, and distances: derivatives against differences, values as those of
// tensors, autocast.
#include <catch2/catch.hpp>
#include <limits>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/autocast.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

TEST_CASE("einsum: derivatives") {
  const auto check = [](const std::string& equation, const std::vector<Shape>& shapes) {
    INFO(equation);
    Inputs inputs;
    for (const Shape& shape : shapes)
      inputs.push_back(leaf(shape, -1, 1, 0.1 + 0.13 * static_cast<double>(inputs.size())));
    check_both([&](const auto& in) { return einsum(equation, in); }, inputs);
  };
  check("ij,jk->ik", {{3, 2}, {2, 4}});
  check("ij->ji", {{3, 2}});
  check("ii", {{3, 3}});
  check("iji->j", {{2, 3, 2}});
  check("bij,bjk->bik", {{2, 3, 2}, {1, 2, 3}});
  check("...i,i->...", {{2, 1, 3}, {3}});
  check("i,j->ij", {{2}, {3}});
  check("bi,bi->", {{2, 3}, {2, 3}});
  check("ij,jk,kl->il", {{2, 3}, {3, 2}, {2, 2}});
  check("bn,anm,bm->ba", {{2, 2}, {3, 2, 3}, {2, 3}});
  check("ij,jk->ik", {{2, 0}, {0, 3}});
}

TEST_CASE("tensordot, inner, kron, cross: derivatives") {
  check_both([](const auto& in) { return tensordot(in[0], in[1], 1); },
             {leaf({2, 3}), leaf({3, 4})});
  check_both(
      [](const auto& in) {
        return tensordot(in[0], in[1], {0, 1}, {1, 0});
      },
      {leaf({2, 3, 2}), leaf({3, 2, 2}, -1, 1, 0.7)});
  check_both([](const auto& in) { return inner(in[0], in[1]); }, {leaf({2, 3}), leaf({4, 3})});
  check_both([](const auto& in) { return inner(in[0], in[1]); }, {leaf({2, 3}), leaf({})});
  check_both([](const auto& in) { return kron(in[0], in[1]); }, {leaf({2, 3}), leaf({2})});
  check_both([](const auto& in) { return cross(in[0], in[1]); },
             {leaf({2, 3}), leaf({1, 3}, 0, 1)});
  check_both([](const auto& in) { return vdot(in[0], in[1]); }, {leaf({3}), leaf({3}, 0, 1)});
}

TEST_CASE("sums with products: derivatives") {
  for (const AddmmOptions& o : {AddmmOptions{}, AddmmOptions{.alpha = 0.5, .beta = -2}}) {
    for (const Shape& shape : {Shape{}, Shape{4}, Shape{2, 3, 4}}) {
      check_both([&](const auto& in) { return baddbmm(in[0], in[1], in[2], o); },
                 {leaf(shape, 0, 1), leaf({2, 3, 2}), leaf({2, 2, 4})});
    }
    check_both([&](const auto& in) { return addbmm(in[0], in[1], in[2], o); },
               {leaf({3, 1}, 0, 1), leaf({2, 3, 2}), leaf({2, 2, 4})});
    check_both([&](const auto& in) { return addmv(in[0], in[1], in[2], o); },
               {leaf({3}, 0, 1), leaf({3, 2}), leaf({2})});
    check_both([&](const auto& in) { return addmv(in[0], in[1], in[2], o); },
               {leaf({}, 0, 1), leaf({3, 2}), leaf({2})});
    check_both([&](const auto& in) { return addr(in[0], in[1], in[2], o); },
               {leaf({2}, 0, 1), leaf({3}), leaf({2})});
  }
  const Variable c(full({2, 2}, NAN, {.dtype = DType::kF64}), true);
  const Variable a = leaf({1, 2, 3}), b = leaf({1, 3, 2});
  backward(sum(baddbmm(c, a, b, {.beta = 0})));
  CHECK(values(c.grad()) == std::vector<double>(4, 0));
}

TEST_CASE("powers, chains and covariances: derivatives") {
  for (std::int64_t power : {0, 1, 2, 3, 5})
    check_both([=](const auto& in) { return matrix_power(in[0], power); }, {leaf({2, 2, 2})});
  const Variable nan(full({2, 2}, NAN, {.dtype = DType::kF64}), true);
  backward(sum(matrix_power(nan, 0)));
  CHECK(values(nan.grad()) == std::vector<double>(4, 0));
  check_both([](const auto& in) { return multi_dot(in); },
             {leaf({2, 3}), leaf({3, 2}), leaf({2, 4}), leaf({4})});
  check_both([](const auto& in) { return cov(in[0]); }, {leaf({2, 4})});
  check_both([](const auto& in) { return cov(in[0], 0); }, {leaf({4})});
  // Not those of a variable with itself, which are 1 and stand on the bound.
  check_both([](const auto& in) { return triu(corrcoef(in[0]), 1); }, {leaf({3, 4})});
}

TEST_CASE("cdist: derivatives, also where points coincide") {
  for (double p : {1.0, 1.5, 2.0, 3.0, std::numeric_limits<double>::infinity()}) {
    // Squared, so that no two differences of features are equal: then the largest has no derivative.
    check_both([=](const auto& in) { return cdist(in[0], square(in[1]), p); },
               {leaf({3, 2}), leaf({2, 4, 2}, 1, 3)});
  }
  for (double p : {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, std::numeric_limits<double>::infinity()}) {
    const Variable x = leaf({2, 3});
    backward(sum(cdist(x, x, p)));
    for (double g : values(x.grad())) CHECK(std::isfinite(g));
    const Variable y(x.tensor().narrow(0, 0, 1), true);
    backward(sum(cdist(y, Variable(y.tensor()), p)));
    CHECK(values(y.grad()) == std::vector<double>(3, 0));
  }
}

TEST_CASE("products in autocast") {
  const Variable x(ones({2, 2, 2}), true), m(ones({2, 2}), true), v(ones({2}), true);
  const AutocastGuard autocast(DType::kBF16);
  for (const Variable& y :
       {einsum("bij,jk->bik", {x, m}), tensordot(x, m, 1), tensordot(x, m, {0}, {0}), inner(x, m),
        baddbmm(m, x, x), addbmm(m, x, x), addmv(v, m, v), addr(m, v, v), vdot(v, v),
        matrix_power(x, 2), multi_dot({m, m, v})})
    CHECK(y.dtype() == DType::kBF16);
  for (const Variable& y : {kron(m, v), cross(leaf({1, 3}), leaf({1, 3})), cov(m), corrcoef(m),
                            cov(cast(m, DType::kBF16)), cdist(m, m)})
    CHECK(y.dtype() != DType::kBF16);
  backward(sum(einsum("bij,jk,k->i", {x, m, v})));
  CHECK(m.grad().dtype() == DType::kF32);
}

}  // namespace
}  // namespace tessera::testing
