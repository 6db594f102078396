// Joining, splitting, padding, repeating and the like: the value against the tensor operation,
// derivatives against differences.
#include "tessera/autograd/ops/shape.h"

#include <catch2/catch.hpp>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

TEST_CASE("cat and stack") {
  for (int dim : {0, 1, -1}) {
    Shape longer{2, 3};
    longer[dim < 0 ? 1 : dim] += 2;
    const Inputs inputs = {leaf({2, 3}), leaf(longer, -1, 1, 0.4), leaf({2, 3}, -1, 1, 0.8)};
    CHECK(values(cat({inputs[0], inputs[1]}, dim)) ==
          values(cat({inputs[0].tensor(), inputs[1].tensor()}, dim)));
    check_twice([&](const Inputs& in) { return square(cat(in, dim)); }, inputs);
    check_twice(
        [&](const Inputs& in) {
          return square(stack({in[0], in[2], in[0]}, dim));
        },
        inputs);
    check_twice(
        [&](const Inputs& in) {
          return cat({in[0], inputs[1].detach(), in[0]}, dim);
        },
        {inputs[0]});
    check_twice([&](const Inputs& in) { return cat({transpose(in[0], 0, 1)}, dim); }, {inputs[0]});
  }
  check_twice([](const Inputs& in) { return stack(in, -1); }, {leaf({2, 3}), leaf({2, 3})});
  check_twice([](const Inputs& in) { return cat(in); }, {leaf({0, 3}), leaf({2, 3})});
  check_twice([](const Inputs& in) { return stack(in); }, {leaf(Shape{}), leaf(Shape{})});
  CHECK_THROWS_AS(cat(std::vector<Variable>{}), InvalidArgument);
  CHECK_THROWS_AS(stack(Inputs{leaf({2}), leaf({3})}), InvalidArgument);
}

TEST_CASE("split, chunk and unbind: views; parts that nobody used count as 0") {
  const Inputs x = {leaf({5, 3})};
  CHECK(split(x[0], 2)[1].tensor().storage() == x[0].tensor().storage());
  check_twice(
      [](const Inputs& in) {
        const std::vector<Variable> parts = split(in[0], {2, 2, 1});
        return mul(parts[0], square(parts[1]));
      },
      x);
  check_twice([](const Inputs& in) { return square(split(in[0], 2).back()); }, x);
  check_twice(
      [](const Inputs& in) {
        const std::vector<Variable> parts = chunk(in[0], 3, 1);
        return add(square(parts[0]), mul(parts[1], parts[2]));
      },
      x);
  check_twice(
      [](const Inputs& in) {
        const std::vector<Variable> rows = unbind(in[0], -1);
        return mul(rows[0], square(rows[2]));
      },
      x);
  check_twice([](const Inputs& in) { return cat(split(in[0], 2), 0); }, x);
  CHECK(unbind(leaf({0, 2})).empty());
  CHECK(split(leaf({0, 2}), std::vector<std::int64_t>{}).empty());
  CHECK(unbind(leaf({2, 3})).size() == 2);
  // No part used at all: the operand has no gradient.
  const Variable unused = leaf({4});
  const std::vector<Variable> parts = split(unused, 2);
  const Variable other = leaf({2});
  backward(sum(add(mul(parts[0].detach(), 0), other)));
  CHECK_FALSE(unused.grad().defined());
}

TEST_CASE("pad, roll, flip, repeat, triangles") {
  const std::vector<TestedFunction> functions = {
      [](const Inputs& in) {
        return pad(in[0], {{1, 2}});
      },
      [](const Inputs& in) {
        return pad(in[0], {{1, 0}, {0, 2}}, 3);
      },
      [](const Inputs& in) {
        return pad(in[0], {{-1, 1}, {0, -2}});
      },
      [](const Inputs& in) {
        return pad(in[0], {{-9, 8}});
      },
      [](const Inputs& in) { return roll(in[0], 2, 1); },
      [](const Inputs& in) { return roll(in[0], -4, 0); },
      [](const Inputs& in) { return flip(in[0], {1}); },
      [](const Inputs& in) {
        return flip(in[0], {0, -1});
      },
      [](const Inputs& in) {
        return repeat(in[0], {2, 1, 3});
      },
      [](const Inputs& in) {
        return repeat(in[0], {3, 2});
      },
      [](const Inputs& in) {
        return repeat(in[0], {1, 0});
      },
      [](const Inputs& in) { return tile(in[0], {2}); },
      [](const Inputs& in) {
        return tile(in[0], {2, 1, 2});
      },
      [](const Inputs& in) { return repeat_interleave(in[0], 3, 0); },
      [](const Inputs& in) { return repeat_interleave(in[0], 2, -1); },
      [](const Inputs& in) { return repeat_interleave(in[0], 0, 1); },
      [](const Inputs& in) { return tril(in[0]); },
      [](const Inputs& in) { return tril(in[0], 1); },
      [](const Inputs& in) { return triu(in[0], -1); },
  };
  const Inputs x = {leaf({3, 4})};
  for (std::size_t i = 0; i < functions.size(); ++i) {
    INFO("function " << i);
    check_twice([&](const Inputs& in) { return square(functions[i](in)); }, x);
    check_twice([&](const Inputs& in) { return functions[i]({transpose(in[0], 0, 1)}); },
                {leaf({4, 3})});
  }
  const Tensor& t = x[0].tensor();
  CHECK(values(pad(x[0], {{1, 2}}, 5)) == values(pad(t, {{1, 2}}, 5)));
  CHECK(values(roll(x[0], 1, 0)) == values(roll(t, 1, 0)));
  CHECK(values(flip(x[0], {0})) == values(flip(t, {0})));
  CHECK(values(repeat(x[0], {2, 2})) == values(repeat(t, {2, 2})));
  CHECK(values(tile(x[0], {2})) == values(tile(t, {2})));
  CHECK(values(repeat_interleave(x[0], 2, 0)) == values(repeat_interleave(t, 2, 0)));
  CHECK(values(tril(x[0])) == values(tril(t)));
  CHECK(values(triu(x[0])) == values(triu(t)));
}

}  // namespace
}  // namespace tessera::testing
