// Indexing and embeddings: the value against the tensor operation, derivatives against differences,
// also where elements go to one place.
#include "tessera/autograd/ops/index.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

Tensor at(const std::vector<std::int64_t>& values, const Shape& shape) {
  return Tensor::from_vector(values, shape);
}

TEST_CASE("gather, take_along_dim, index_select, index") {
  const Tensor rows = at({2, 0, 2, 1, 1, 0, 0, 2}, {2, 4});
  const Tensor list = at({1, 1, 0}, {3}), column = at({2, 0}, {2, 1});
  const std::vector<TestedFunction> functions = {
      [&](const Inputs& in) { return gather(in[0], 0, rows); },
      [&](const Inputs& in) {
        return gather(in[0], -1, at({3, 3, 0}, {1, 3}));
      },
      [&](const Inputs& in) {
        return take_along_dim(in[0], at({1, 0}, {2, 1}), 0);
      },
      [&](const Inputs& in) { return index_select(in[0], 0, list); },
      [&](const Inputs& in) { return index_select(in[0], 1, cast(list, DType::kI32)); },
      [&](const Inputs& in) { return index_select(in[0], -1, at({}, {0})); },
      [&](const Inputs& in) { return index(in[0], {list}); },
      [&](const Inputs& in) {
        return index(in[0], {column, list});
      },
      [&](const Inputs& in) { return index(in[0], {at({}, {0})}); },
  };
  const Inputs x = {leaf({3, 4})};
  for (std::size_t i = 0; i < functions.size(); ++i) {
    INFO("function " << i);
    check_twice([&](const Inputs& in) { return square(functions[i](in)); }, x);
    check_twice([&](const Inputs& in) { return functions[i]({transpose(in[0], 0, 1)}); },
                {leaf({4, 3})});
  }
  CHECK(values(gather(x[0], 0, rows)) == values(gather(x[0].tensor(), 0, rows)));
  CHECK(values(index(x[0], {column, list})) == values(index(x[0].tensor(), {column, list})));
  CHECK_THROWS_AS(values(gather(x[0], 0, at({3}, {1, 1}))), InvalidArgument);
}

TEST_CASE("scatter: of elements for one place the last has the gradient") {
  const Inputs inputs = {leaf({3, 4}), leaf({2, 5}, -1, 1, 0.6)};
  const Tensor once = at({0, 2, 1, 1, 0, 2}, {2, 3}), twice = at({0, 2, 0, 0, 2, 2}, {2, 3});
  for (const Tensor& where : {once, twice}) {
    check_twice([&](const Inputs& in) { return square(scatter(in[0], 0, where, in[1])); }, inputs);
    check_twice([&](const Inputs& in) { return square(scatter(in[0], 1, where, in[1])); }, inputs);
    check_twice([&](const Inputs& in) { return square(scatter_add(in[0], 0, where, in[1])); },
                inputs);
    check_twice([&](const Inputs& in) { return square(scatter_add(in[0], 1, where, in[1])); },
                inputs);
    CHECK(values(scatter(inputs[0], 1, where, inputs[1])) ==
          values(scatter(inputs[0].tensor(), 1, where, inputs[1].tensor())));
    CHECK(values(scatter_add(inputs[0], 1, where, inputs[1])) ==
          values(scatter_add(inputs[0].tensor(), 1, where, inputs[1].tensor())));
  }
  const Variable constant(irregular({3, 4}));
  check_twice([&](const Inputs& in) { return scatter(constant, 0, once, in[0]); }, {inputs[1]});
  check_twice([&](const Inputs& in) { return scatter(in[0], 0, once, constant); }, {inputs[0]});
}

TEST_CASE("scatter: elements that were overwritten have the gradient 0, whatever dy is") {
  for (const std::int64_t n : {7, 255, 256, 257, 700}) {
    INFO(n << " elements");
    const Variable x(zeros({2, 7}), true), src(zeros({2, n}), true);
    const Tensor index = remainder(arange(n), 7).view({1, n}).expand({2, n});
    const Variable y = scatter(x, 1, index, src);
    const Tensor dy = full(y.shape(), std::numeric_limits<double>::infinity());
    const std::vector<Variable> dx = grad({&y, 1}, Inputs{x, src}, {.gradient = dy});
    CHECK(values(dx[0]) == std::vector<double>(14, 0));
    const Tensor chosen = dx[1].tensor().slice(1, n - 7, n);
    CHECK(values(chosen) == values(full({2, 7}, std::numeric_limits<double>::infinity())));
    CHECK(values(dx[1].tensor().slice(1, 0, n - 7)) ==
          std::vector<double>(static_cast<std::size_t>(2 * (n - 7)), 0));
  }
}

TEST_CASE("index_put: assigned and added, values that broadcast") {
  const Inputs inputs = {leaf({3, 4}), leaf({4}, -1, 1, 0.6), leaf({2, 3}, -1, 1, 0.2)};
  const Tensor rows = at({2, 0, 2}, {3}), column = at({1, 1}, {2, 1});
  for (bool accumulate : {false, true}) {
    const IndexPutOptions options{.accumulate = accumulate};
    check_twice([&](const Inputs& in) { return square(index_put(in[0], {rows}, in[1], options)); },
                {inputs[0], inputs[1]});
    check_twice(
        [&](const Inputs& in) {
          return square(index_put(transpose(in[0], 0, 1), {column, rows}, in[1], options));
        },
        {inputs[0], inputs[2]});
    CHECK(values(index_put(inputs[0], {rows}, inputs[1], options)) ==
          values(index_put(inputs[0].tensor(), {rows}, inputs[1].tensor(), options)));
  }
}

TEST_CASE("masked_fill") {
  const Tensor mask = cast(at({1, 0, 0, 1}, {4}), DType::kBool);
  const Inputs x = {leaf({3, 4})};
  CHECK(values(masked_fill(x[0], mask, 7)) == values(masked_fill(x[0].tensor(), mask, 7)));
  check_twice([&](const Inputs& in) { return square(masked_fill(in[0], mask, 7)); }, x);
}

TEST_CASE("embedding: rows summed, the padding entry left out, twice") {
  const Inputs weight = {leaf({5, 3})};
  for (const Tensor& index : {at({4, 0, 4, 2, 1, 4}, {2, 3}), at({3}, {}), at({}, {0})}) {
    for (std::int64_t padding : {-1, 4}) {
      const EmbeddingOptions options{.padding_index = padding};
      CHECK(values(embedding(weight[0], index, options)) ==
            values(embedding(weight[0].tensor(), index)));
      const TestedFunction function = [&](const Inputs& in) {
        return square(embedding(in[0], index, options));
      };
      if (padding < 0) {
        check_twice(function, weight);
      } else {
        const Variable w = leaf({5, 3});
        backward(sum(function({w})));
        const std::vector<double> got = values(w.grad()), all = [&] {
          const Variable other = leaf({5, 3});
          backward(sum(square(embedding(other, index))));
          return values(other.grad());
        }();
        for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == (i / 3 == 4 ? 0 : all[i]));
      }
    }
  }
  CHECK(
      thrown<InvalidArgument>([&] { embedding(weight[0], at({0}, {1}), {.padding_index = 5}); }) ==
      "[embedding] padding_index 5 is outside [0, 5), the entries of the weight; -1 means none");
}

TEST_CASE("embedding: the second derivative leaves the padding entry out too") {
  const Variable w = leaf({3, 2});
  const Tensor index = at({2, 0, 2}, {3});
  const Variable y = sum(mul(square(embedding(w, index, {.padding_index = 2})), 0.5));
  const Variable dw = grad({&y, 1}, {&w, 1}, {.create_graph = true})[0];
  const Variable again = sum(dw);
  CHECK(values(grad({&again, 1}, {&w, 1})[0]) == std::vector<double>{1, 1, 0, 0, 0, 0});
}

// Says which slots were asked for, and collects into one of its own.
struct SlotSink final : GradientSink {
  Tensor slot;
  int taken = 0, accumulated = 0;
  std::optional<GradientSlot> take_slot(DType storable) override {
    if (storable != slot.dtype()) return std::nullopt;
    return GradientSlot{.tensor = slot, .beta = taken++ == 0 ? 0.0 : 1.0};
  }
  void accumulate(const Tensor&) override { ++accumulated; }
};

TEST_CASE("embedding: the gradient is written into the slot, also of another dtype") {
  const Tensor index = at({2, 0, 2}, {3});
  for (DType dtype : {DType::kF64, DType::kBF16}) {
    const Variable w(cast(irregular({3, 2}), dtype), true);
    const auto sink = std::make_shared<SlotSink>();
    sink->slot = full({3, 2}, 99, {.dtype = dtype == DType::kBF16 ? DType::kF32 : DType::kF64});
    Variable(w).set_gradient_sink(sink);
    backward(sum(embedding(w, index)));
    CHECK(values(sink->slot) == std::vector<double>{1, 1, 0, 0, 2, 2});
    backward(sum(embedding(w, index)));
    CHECK(values(sink->slot) == std::vector<double>{2, 2, 0, 0, 4, 4});
    CHECK(sink->taken == 2);
    CHECK(sink->accumulated == 0);
  }
}

TEST_CASE("an index that was overwritten is noticed") {
  const Variable x = leaf({3});
  const Tensor index = at({0, 1}, {2});
  const Variable y = sum(gather(x, 0, index));
  fill_(index, 2);
  CHECK_THAT(thrown<StateError>([&] { backward(y); }), Catch::Contains("gather"));
}

}  // namespace
}  // namespace tessera::testing
