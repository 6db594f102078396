// Views and reductions: the value against the tensor operation, derivatives against differences.
#include <catch2/catch.hpp>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

using Catch::Contains;

TEST_CASE("views share memory; their derivatives undo them") {
  const Variable x = leaf({3, 4});
  const Tensor& t = x.tensor();
  CHECK(view(x, {2, 6}).tensor().storage() == t.storage());
  CHECK(transpose(x, 0, 1).tensor().storage() == t.storage());
  CHECK(slice(x, 1, 1, 3).tensor().storage() == t.storage());
  CHECK(expand(x, {2, 3, 4}).tensor().storage() == t.storage());
  CHECK(values(slice(x, 1, 1, 3)) == values(t.slice(1, 1, 3)));
  const std::vector<TestedFunction> functions = {
      [](const Inputs& in) {
        return view(in[0], {2, -1});
      },
      [](const Inputs& in) { return transpose(in[0], 0, 1); },
      [](const Inputs& in) { return slice(in[0], 0, 1, 3); },
      [](const Inputs& in) { return slice(in[0], -1, 1, 2); },
      [](const Inputs& in) { return slice(in[0], 1, 4, 4); },
      [](const Inputs& in) { return slice(transpose(in[0], 0, 1), 0, 1, 4); },
      [](const Inputs& in) {
        return expand(in[0], {2, 3, 4});
      },
      [](const Inputs& in) {
        return reshape(transpose(in[0], 0, 1), {6, 2});
      },
      [](const Inputs& in) { return slice(in[0], 1, 0, 4, 3); },
      [](const Inputs& in) { return slice(in[0], 0, -3, -1, 2); },
      [](const Inputs& in) { return narrow(in[0], 1, 1, 2); },
      [](const Inputs& in) { return select(in[0], 0, 2); },
      [](const Inputs& in) { return select(in[0], -1, -2); },
      [](const Inputs& in) { return unsqueeze(in[0], -1); },
      [](const Inputs& in) { return squeeze(unsqueeze(in[0], 1), 1); },
      [](const Inputs& in) { return squeeze(slice(in[0], 0, 1, 2)); },
      [](const Inputs& in) {
        return permute(view(in[0], {3, 2, 2}), {2, 0, -2});
      },
      [](const Inputs& in) {
        return movedim(view(in[0], {3, 2, 2}), 0, -1);
      },
      [](const Inputs& in) {
        return flatten(transpose(view(in[0], {3, 2, 2}), 0, 2), 1);
      },
      [](const Inputs& in) {
        return unflatten(in[0], 1, {2, -1});
      },
      [](const Inputs& in) { return contiguous(transpose(in[0], 0, 1)); },
      [](const Inputs& in) { return clone(transpose(in[0], 0, 1)); },
      [](const Inputs& in) {
        return mul(view(in[0], {12}), view(transpose(view(in[0], {4, 3}), 0, 0), {12}));
      },
  };
  for (std::size_t i = 0; i < functions.size(); ++i) {
    INFO("function " << i);
    check_twice(functions[i], {x});
    check_twice([&](const Inputs& in) { return square(functions[i](in)); }, {x});
  }
  check_twice([](const Inputs& in) { return expand(in[0], {4, 3, 5}); }, {leaf({3, 1})});
  check_twice([](const Inputs& in) { return expand(in[0], {2, 2}); }, {leaf(Shape{})});
  check_twice([](const Inputs& in) { return expand(in[0], {0, 2}); }, {leaf({1, 2})});
  check_twice([](const Inputs& in) { return view(in[0], {0, 5}); }, {leaf({2, 0})});
}

TEST_CASE("views: errors are the tensor's") {
  const Variable x = leaf({3, 4});
  CHECK_THAT(thrown<InvalidArgument>([&] { view(x, {5}); }), Contains("[view]"));
  CHECK_THAT(thrown<InvalidArgument>([&] { view(transpose(x, 0, 1), {12}); }),
             Contains("use reshape"));
  CHECK_THAT(thrown<InvalidArgument>([&] { transpose(x, 0, 2); }), Contains("[transpose]"));
  CHECK_THAT(thrown<InvalidArgument>([&] { slice(x, 0, 2, 1); }), Contains("[slice]"));
  CHECK_THAT(thrown<InvalidArgument>([&] { expand(x, {4}); }), Contains("[expand]"));
}

TEST_CASE("sum, mean and sum_to_shape") {
  const Variable x = leaf({2, 3, 4});
  CHECK(values(sum(x, {1})) == values(sum(x.tensor(), {1})));
  CHECK(values(mean(x, {-1, 0}, true)) == values(mean(x.tensor(), {-1, 0}, true)));
  const std::vector<TestedFunction> functions = {
      [](const Inputs& in) { return sum(in[0]); },
      [](const Inputs& in) { return sum(in[0], {0}); },
      [](const Inputs& in) { return sum(in[0], {1}, true); },
      [](const Inputs& in) {
        return sum(in[0], {-1, 0});
      },
      [](const Inputs& in) { return sum(in[0], {}, true); },
      [](const Inputs& in) { return mean(in[0]); },
      [](const Inputs& in) { return mean(in[0], {1}); },
      [](const Inputs& in) {
        return mean(in[0], {-1, 0}, true);
      },
      [](const Inputs& in) { return sum_to_shape(in[0], {4}); },
      [](const Inputs& in) {
        return sum_to_shape(in[0], {3, 1});
      },
      [](const Inputs& in) {
        return sum_to_shape(in[0], {2, 1, 4});
      },
      [](const Inputs& in) { return sum_to_shape(in[0], {}); },
      [](const Inputs& in) { return sum(transpose(in[0], 0, 2), {1}); },
  };
  for (std::size_t i = 0; i < functions.size(); ++i) {
    INFO("function " << i);
    check_twice(functions[i], {x});
    check_twice([&](const Inputs& in) { return square(functions[i](in)); }, {x});
  }
  CHECK(sum_to_shape(x, x.shape()).same_as(x));
  CHECK_THROWS_AS(sum_to_shape(x, {5}), InvalidArgument);
  CHECK_THROWS_AS(sum(x, {3}), InvalidArgument);
}

TEST_CASE("sum and mean of nothing") {
  check_twice([](const Inputs& in) { return sum(in[0]); }, {leaf({0})});
  check_twice([](const Inputs& in) { return sum(in[0], {0}); }, {leaf({0, 3})});
  check_twice([](const Inputs& in) { return mean(in[0], {0}); }, {leaf({3, 0})});
  const Variable x = leaf({0});
  const Variable y = mean(x);
  CHECK(std::isnan(y.item<double>()));
  backward(y);
  CHECK(x.grad().shape() == Shape{0});
}

}  // namespace
}  // namespace tessera::testing
