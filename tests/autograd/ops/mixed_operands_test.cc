// Code reads the same for tensors and variables: constants as tensors, comparisons and positions of
// variables, views as members and as functions, texts.

#include <catch2/catch.hpp>
#include <sstream>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/inplace.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

// The values of f(variable, tensor) are those of f(tensor, tensor), the gradient is that with the
// constant as a variable, and the constant gets none.
template <class F>
void check_constant(const F& f, double low = 0.5) {
  const Tensor c = irregular({3}, low, 2, 0.3);
  const Variable x = leaf({2, 3}, low, 2), y = leaf({2, 3}, low, 2);
  CHECK(values(f(x, c)) == values(f(x.tensor(), c)));
  CHECK(values(f(c, x)) == values(f(c, x.tensor())));
  backward(sum(f(x, c)) + sum(f(c, x)));
  backward(sum(f(y, Variable(c))) + sum(f(Variable(c), y)));
  CHECK(values(x.grad()) == values(y.grad()));
  check_once([&](const Inputs& in) { return f(in[0], c); }, {leaf({2, 3}, low, 2)});
  check_once([&](const Inputs& in) { return f(c, in[0]); }, {leaf({2, 3}, low, 2)});
}

TEST_CASE("a product of a variable and a constant tensor") {
  const Tensor left = irregular({3, 2}), right = irregular({4, 5});
  const Variable x = leaf({2, 4});
  const Variable y = matmul(matmul(left, x), right);
  CHECK(values(y) == values(matmul(matmul(left, x.tensor()), right)));
  check_once([&](const Inputs& in) { return matmul(left, in[0]); }, {leaf({2, 4})});
  check_once([&](const Inputs& in) { return matmul(in[0], right); }, {leaf({2, 4})});
}

TEST_CASE("constants of a variable's shape, and two numbers that it chooses between") {
  const Variable x = leaf({2, 3}, -1, 2);
  CHECK(values(ones_like(x)) == values(ones({2, 3})));
  CHECK(zeros_like(x).dtype() == x.dtype());
  CHECK(values(full_like(x, 2)) == values(full({2, 3}, 2)));
  CHECK(rand_like(x).shape() == x.shape());
  CHECK(randn_like(x).dtype() == x.dtype());
  const Tensor signs = where(x > 0, 1.0, -1.0);
  CHECK(values(signs) == values(sign(x.tensor())));
  CHECK(where(x > 0, 1, -1).dtype() == where(x.tensor() > 0, TensorOrNumber(1), -1).dtype());
}

TEST_CASE("a linear map and a convolution without a bias") {
  const Variable x = leaf({2, 3}), w = leaf({4, 3}), image = leaf({1, 2, 5}),
                 kernel = leaf({3, 2, 2});
  CHECK(values(linear(x, w)) == values(linear(x, w, {})));
  CHECK(values(linear(x.tensor(), w.tensor())) == values(linear(x, w)));
  CHECK(values(conv1d(image, kernel)) == values(conv1d(image, kernel, {})));
}

TEST_CASE("arithmetic of a variable and a constant tensor") {
  check_constant([](const auto& a, const auto& b) { return a + b; });
  check_constant([](const auto& a, const auto& b) { return a - b; });
  check_constant([](const auto& a, const auto& b) { return a * b; });
  check_constant([](const auto& a, const auto& b) { return a / b; });
  check_constant([](const auto& a, const auto& b) { return add(a, b); });
  check_constant([](const auto& a, const auto& b) { return sub(a, b); });
  check_constant([](const auto& a, const auto& b) { return mul(a, b); });
  check_constant([](const auto& a, const auto& b) { return div(a, b); });
  check_constant([](const auto& a, const auto& b) { return pow(a, b); });
  check_constant([](const auto& a, const auto& b) { return maximum(a, b); });
  check_constant([](const auto& a, const auto& b) { return minimum(a, b); });
  const Tensor chosen = Tensor::from_vector<bool>({true, false, true}, {3});
  check_constant([&](const auto& a, const auto& b) { return where(chosen, a, b); });
  // remainder jumps where a / b is a whole number: far from it here.
  const Variable x = leaf({2}, 5.2, 5.8);
  const Tensor c = Tensor::from_vector<double>({2, 3}, {2});
  CHECK(values(remainder(x, c)) == values(remainder(x.tensor(), c)));
  check_once([&](const Inputs& in) { return remainder(in[0], c); }, {x});
}

TEST_CASE("operators that assign are the operations in place, with their gradients") {
  const Tensor c = irregular({3}, 0.5, 2, 0.3);
  const auto both = [&](const auto& x) {
    auto y = x * 1;
    y += x;
    y -= c;
    y *= 3;
    y /= c;
    y += 0.5;
    y -= 2;
    y /= 4;
    y *= x;
    return y;
  };
  const Variable x = leaf({2, 3}, 0.5, 2);
  const Tensor t = x.tensor();
  CHECK(values(both(x)) == values(both(t)));
  const std::vector<double> expected = values(((t + t - c) * 3 / c + 0.5 - 2) / 4 * t);
  CHECK(values(both(t)) == expected);
  check_once([&](const Inputs& in) { return both(in[0]); }, {leaf({2, 3}, 0.5, 2)});
  const Variable counts(Tensor::from_vector<std::int64_t>({3, 4}, {2}));
  counts += 2;
  counts *= 3;
  CHECK(counts.to_vector<std::int64_t>() == std::vector<std::int64_t>{15, 18});
  CHECK_THROWS_AS(counts += 0.5, InvalidArgument);
  CHECK_THROWS_AS(counts.tensor() += 0.5, InvalidArgument);
  CHECK_THROWS_AS(counts /= 2, InvalidArgument);
  CHECK_THROWS_AS(x += 1, StateError);  // a leaf with a gradient, as in PyTorch
}

TEST_CASE("operators that compare, of bits, and the sign") {
  const Tensor a = Tensor::from_vector<float>({1, 2, 3}, {3}), b = 4 - a;
  const auto check = [](const Tensor& x, std::vector<bool> expected) {
    CHECK(x.to_vector<bool>() == expected);
  };
  const auto compare = [&](const auto& x, const auto& y) {
    check(x < y, {true, false, false});
    check(x <= y, {true, true, false});
    check(x > y, {false, false, true});
    check(x >= y, {false, true, true});
  };
  compare(a, b);
  compare(a, 2);
  compare(Variable(a), Variable(b));
  compare(Variable(a), b);
  compare(a, Variable(b));
  compare(Variable(a), 2);
  check((a > 1) & (a < 3), {false, true, false});
  check((a > 2) | (a < 2), {true, false, true});
  check(~(a > 1), {true, false, false});
  const Variable mask(a > 1);
  check(mask & (a < 3), {false, true, false});
  check((a < 2) | mask, {true, true, true});
  check(~mask, {true, false, false});
  CHECK((-a).to_vector<float>() == std::vector<float>{-1, -2, -3});
}

TEST_CASE("an index in brackets is select of dim 0, with a gradient") {
  const Variable x = leaf({3, 2}, 0.5, 2);
  CHECK(values(x[1]) == values(x.select(0, 1)));
  CHECK(values(x.tensor()[-1][0]) == values(x.tensor().select(0, 2).select(0, 0)));
  check_once([](const Inputs& in) { return in[0][2] * in[0][0]; }, {x});
  CHECK_THROWS_AS(x[3], InvalidArgument);
}

TEST_CASE("a number before an operator keeps integers") {
  const Variable x(Tensor::from_vector<std::int64_t>({3, 4}, {2}));
  CHECK((2 * x).dtype() == DType::kI64);
  CHECK((1 - x).tensor().to_vector<std::int64_t>() == std::vector<std::int64_t>{-2, -3});
  CHECK((1 + x).tensor().to_vector<std::int64_t>() == std::vector<std::int64_t>{4, 5});
  CHECK((12 / x).tensor().to_vector<float>() == std::vector<float>{4, 3});
}

TEST_CASE("comparisons, predicates and positions of variables are tensors without a gradient") {
  const Tensor a = Tensor::from_vector<double>({1, 2, 0, 4}, {2, 2});
  const Tensor b = Tensor::from_vector<double>({1, 0, 3, 4}, {2, 2});
  const Variable x(a, true), y(b);
  const auto same = [](const Tensor& one, const Tensor& other) {
    CHECK(one.dtype() == other.dtype());
    CHECK(values(one) == values(other));
  };
  const auto check = [&](const auto& f) {
    same(f(x, y), f(a, b));
    same(f(x, b), f(a, b));
    same(f(a, y), f(a, b));
    same(f(x, 2), f(a, 2));
    same(f(2, x), f(2, a));
  };
  check([](const auto& p, const auto& q) { return eq(p, q); });
  check([](const auto& p, const auto& q) { return ne(p, q); });
  check([](const auto& p, const auto& q) { return lt(p, q); });
  check([](const auto& p, const auto& q) { return le(p, q); });
  check([](const auto& p, const auto& q) { return gt(p, q); });
  check([](const auto& p, const auto& q) { return ge(p, q); });
  check([](const auto& p, const auto& q) { return logical_and(p, q); });
  check([](const auto& p, const auto& q) { return logical_or(p, q); });
  check([](const auto& p, const auto& q) { return logical_xor(p, q); });
  CHECK(values(eq(x, y)) == std::vector<double>{1, 0, 0, 1});
  same(logical_not(x), logical_not(a));
  const Variable odd(Tensor::from_vector<double>({NAN, INFINITY, 1}, {3}));
  CHECK(values(isnan(odd)) == std::vector<double>{1, 0, 0});
  CHECK(values(isinf(odd)) == std::vector<double>{0, 1, 0});
  CHECK(values(isfinite(odd)) == std::vector<double>{0, 0, 1});
  same(argmax(x), argmax(a));
  same(argmax(x, 0, true), argmax(a, 0, true));
  same(argmin(x, 0), argmin(a, 0));
  same(argsort(x, 0, {.descending = true}), argsort(a, 0, {.descending = true}));
  CHECK(values(all(x, {0})) == std::vector<double>{0, 1});
  CHECK(values(any(x, {1}, true)) == std::vector<double>{1, 1});
}

TEST_CASE("views of tensors and of variables have one name as member and as function") {
  const Tensor t = irregular({2, 3, 4});
  const auto check = [&](const auto& function, const auto& member) {
    const Variable x = leaf({2, 3, 4});
    const Tensor of_tensor = member(t);
    CHECK(function(t).shape() == of_tensor.shape());
    CHECK(function(t).strides() == of_tensor.strides());
    CHECK(function(t).offset() == of_tensor.offset());
    CHECK(function(t).storage() == t.storage());
    CHECK(member(x).shape() == of_tensor.shape());
    CHECK(values(member(x)) == values(of_tensor));
    CHECK(values(member(x)) == values(function(x)));
    check_once([&](const Inputs& in) { return member(in[0]); }, {x});
  };
#define CHECK_VIEW(name, ...)                               \
  check([](const auto& x) { return name(x, __VA_ARGS__); }, \
        [](const auto& x) { return x.name(__VA_ARGS__); })
  CHECK_VIEW(view, Shape{6, 4});
  CHECK_VIEW(unflatten, -1, Shape{2, 2});
  CHECK_VIEW(transpose, 0, 2);
  CHECK_VIEW(movedim, 0, -1);
  CHECK_VIEW(slice, 1, 1, 3);
  CHECK_VIEW(narrow, 2, 1, 2);
  CHECK_VIEW(select, 1, -1);
  CHECK_VIEW(expand, Shape{5, 2, 3, 4});
  CHECK_VIEW(unsqueeze, 1);
#undef CHECK_VIEW
  check(
      [](const auto& x) {
        return permute(x, {2, 0, 1});
      },
      [](const auto& x) {
        return x.permute({2, 0, 1});
      });
  const std::vector<int> order = {1, 2, 0};
  check([&](const auto& x) { return permute(x, order); },
        [&](const auto& x) { return x.permute(order); });
  check([](const auto& x) { return squeeze(x.narrow(0, 1, 1)); },
        [](const auto& x) { return x.narrow(0, 1, 1).squeeze(); });
  check([](const auto& x) { return squeeze(x.narrow(2, 1, 1), -1); },
        [](const auto& x) { return x.narrow(2, 1, 1).squeeze(-1); });
}

TEST_CASE("variables as text, and on the host") {
  const Tensor t = Tensor::from_vector<float>({1, 2}, {2}, kCpu);
  const std::string text = "variable f32 [2] on cpu", numbers = t.str().substr(t.str().find('\n'));
  CHECK(Variable(t).str() == text + numbers);
  const Variable x(t, true);
  CHECK(x.str() == text + ", requires grad" + numbers);
  CHECK((x * 2.0).str().find("variable f32 [2] on cpu, from \"mul\"\n") == 0);
  CHECK(Variable().str() == "variable, undefined");
  std::ostringstream out;
  out << x;
  CHECK(out.str() == x.str());
  CHECK(x.to_vector<float>() == std::vector<float>{1, 2});
}

}  // namespace
}  // namespace tessera::testing
