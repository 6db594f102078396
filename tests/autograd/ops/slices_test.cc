// Masks, negative indices, whole slices and scatter_reduce: the value against the tensor operation,
// derivatives against differences, also where elements go to one place.
#include <catch2/catch.hpp>
#include <limits>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/index.h"
#include "tessera/autograd/ops/mask.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tests/autograd/fixtures.h"

namespace tessera::testing {
namespace {

Tensor at(const std::vector<std::int64_t>& values, const Shape& shape) {
  return Tensor::from_vector(values, shape);
}

Tensor mask_of(const std::vector<std::int64_t>& values, const Shape& shape) {
  return cast(at(values, shape), DType::kBool);
}

// A function of tensors and of variables: the same values, and derivatives that are twice right.
template <class F>
void check_both(const F& function, const Inputs& inputs) {
  std::vector<Tensor> tensors;
  for (const Variable& input : inputs) tensors.push_back(input.tensor());
  CHECK(values(function(inputs)) == values(function(tensors)));
  check_twice([&](const Inputs& in) { return square(function(in)); }, inputs);
}

TEST_CASE("masked_select, masked_scatter, masked_fill: derivatives") {
  const Tensor row = mask_of({1, 0, 1, 1}, {4}), none = mask_of({0, 0, 0, 0}, {4}),
               whole = mask_of({0, 1, 1, 0, 0, 0, 1, 0, 1, 1, 0, 1}, {3, 4});
  for (const Tensor& mask : {row, whole, none}) {
    check_both([&](const auto& in) { return masked_select(in[0], mask); }, {leaf({3, 4})});
    check_both([&](const auto& in) { return masked_select(in[0], mask); }, {leaf({3, 1})});
    check_both([&](const auto& in) { return masked_scatter(in[0], mask, in[1]); },
               {leaf({3, 4}), leaf({11}, -1, 1, 0.6)});
    check_both([&](const auto& in) { return masked_scatter(in[0], mask, in[1]); },
               {leaf({1}), leaf({5, 4}, -1, 1, 0.6)});
    check_both([&](const auto& in) { return masked_fill(in[0], mask, in[1]); },
               {leaf({3, 4}), leaf(Shape{})});
    check_both([&](const auto& in) { return masked_fill(in[0], mask, 7); }, {leaf({2, 1, 1})});
  }
  check_both([&](const auto& in) { return masked_scatter(in[0], none, in[1]); },
             {leaf({4}), leaf({3}, -1, 1, 0.6)});
  const Variable x = leaf({3, 4});
  CHECK(nonzero(x).dim(0) == 12);
  CHECK(nonzero_as_tuple(x).size() == 2);
  CHECK(nonzero_static(x, 3).dim(0) == 3);
  CHECK(values(masked_fill(x, row, Tensor::scalar(2))) == values(masked_fill(x, row, 2)));
}

TEST_CASE("masks and negative indices in index, index_put, take, take_along_dim: derivatives") {
  const Tensor rows = mask_of({1, 0, 1}, {3}),
               whole = mask_of({0, 1, 1, 0, 0, 0, 1, 0, 1, 1, 0, 1}, {3, 4});
  const Tensor back = at({-1, 0, -1, 2}, {4});
  const Inputs x = {leaf({3, 4})};
  check_both([&](const auto& in) { return index(in[0], {rows}); }, x);
  check_both([&](const auto& in) { return index(in[0], {whole}); }, x);
  check_both([&](const auto& in) { return index(in[0], {back}); }, x);
  check_both([&](const auto& in) { return take(in[0], at({-1, 11, 0, -12, 5, -1}, {2, 3})); }, x);
  check_both([&](const auto& in) { return take_along_dim(in[0], at({-1, 0, -1}, {3, 1}), 1); }, x);
  check_both(
      [&](const auto& in) {
        return take_along_dim(in[0], at({-1, 0, -3, 2}, {1, 4}), 0);
      },
      x);
  for (bool accumulate : {false, true}) {
    const IndexPutOptions options{.accumulate = accumulate};
    check_both([&](const auto& in) { return index_put(in[0], {rows}, in[1], options); },
               {x[0], leaf({4}, -1, 1, 0.6)});
    check_both([&](const auto& in) { return index_put(in[0], {whole}, in[1], options); },
               {x[0], leaf({6}, -1, 1, 0.6)});
    check_both([&](const auto& in) { return index_put(in[0], {back}, in[1], options); },
               {x[0], leaf({4, 4}, -1, 1, 0.6)});
  }
}

TEST_CASE("index_add, index_copy, index_fill, scatter of a number: derivatives") {
  const Tensor list = at({2, 0, 2, 1}, {4}), one = at({1}, {});
  const Inputs inputs = {leaf({3, 4}), leaf({4, 4}, -1, 1, 0.6)};
  check_both([&](const auto& in) { return index_add(in[0], 0, list, in[1]); }, inputs);
  check_both([&](const auto& in) { return index_add(in[0], -2, list, in[1], {.alpha = -1.5}); },
             inputs);
  check_both([&](const auto& in) { return index_copy(in[0], 0, list, in[1]); }, inputs);
  check_both([&](const auto& in) { return index_copy(in[0], -1, list, in[1]); },
             {leaf({3, 5}), leaf({3, 4}, -1, 1, 0.6)});
  check_both([&](const auto& in) { return index_copy(in[0], 1, one, in[1]); },
             {inputs[0], leaf({3, 1}, -1, 1, 0.6)});
  check_both([&](const auto& in) { return index_add(in[0], 1, one, in[1]); },
             {inputs[0], leaf({3, 1}, -1, 1, 0.6)});
  check_both(
      [&](const auto& in) {
        return index_fill(in[0], 0, at({-1, 0, 2}, {3}), 3);
      },
      {inputs[0]});
  check_both([&](const auto& in) { return index_fill(in[0], 1, list, in[1]); },
             {inputs[0], leaf(Shape{})});
  check_both(
      [&](const auto& in) {
        return scatter(in[0], 1, at({0, 2, 1, 1}, {2, 2}), 3);
      },
      {inputs[0]});
}

TEST_CASE("scatter_reduce: derivatives of every reduction") {
  const Tensor places = at({0, 2, 2, 0, 0, 2}, {2, 3});
  // Larger than the index, and of its shape.
  for (const Shape& shape : {Shape{3, 4}, Shape{2, 3}}) {
    for (ScatterReduce reduce : {ScatterReduce::kSum, ScatterReduce::kProd, ScatterReduce::kMean,
                                 ScatterReduce::kAmax, ScatterReduce::kAmin}) {
      for (bool include_self : {true, false}) {
        INFO("reduction " << static_cast<int>(reduce) << include_self);
        const ScatterReduceOptions options{.reduce = reduce, .include_self = include_self};
        for (int dim : {0, 1}) {
          check_both(
              [&](const auto& in) { return scatter_reduce(in[0], dim, places, in[1], options); },
              {leaf({3, 4}), leaf(shape, -1, 1, 0.6)});
        }
      }
    }
  }
}

TEST_CASE("0-d operands: derivatives") {
  const std::vector<Tensor> lists = {at({0}, {}), at({0}, {1}), at({}, {0})};
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{2}}) {
    for (const Tensor& list : lists) {
      for (const Shape& from : {Shape{}, Shape{1}, Shape{2}}) {
        INFO(shape.str() << " at " << list.shape().str() << " from " << from.str());
        const Inputs inputs = {leaf(shape), leaf(from, -1, 1, 0.6)};
        check_both([&](const auto& in) { return scatter(in[0], 0, list, in[1]); }, inputs);
        check_both([&](const auto& in) { return scatter_add(in[0], -1, list, in[1]); }, inputs);
        for (ScatterReduce reduce : {ScatterReduce::kSum, ScatterReduce::kProd,
                                     ScatterReduce::kMean, ScatterReduce::kAmax}) {
          check_both(
              [&](const auto& in) {
                return scatter_reduce(in[0], 0, list, in[1], {.reduce = reduce});
              },
              inputs);
        }
        if (from.numel() != list.numel()) continue;
        check_both([&](const auto& in) { return index_add(in[0], 0, list, in[1], {.alpha = 2}); },
                   inputs);
        check_both([&](const auto& in) { return index_copy(in[0], -1, list, in[1]); }, inputs);
      }
      check_both([&](const auto& in) { return index_fill(in[0], 0, list, 3); }, {leaf(shape)});
      check_both([&](const auto& in) { return index_fill(in[0], 0, list, in[1]); },
                 {leaf(shape), leaf(Shape{})});
    }
  }
  const Tensor twice = at({0, 0}, {2});
  const Inputs inputs = {leaf(Shape{}), leaf({2}, -1, 1, 0.6)};
  check_both([&](const auto& in) { return index_add(in[0], 0, twice, in[1]); }, inputs);
  check_both([&](const auto& in) { return index_copy(in[0], 0, twice, in[1]); }, inputs);
}

std::vector<double> gradient_of_product(const std::vector<double>& src) {
  const Variable x(Tensor::from_vector<double>({2}, {1}), true),
      from(Tensor::from_vector(src, {static_cast<std::int64_t>(src.size())}), true);
  const Tensor places = zeros(from.shape(), {.dtype = DType::kI64});
  backward(sum(scatter_reduce(x, 0, places, from, {.reduce = ScatterReduce::kProd})));
  std::vector<double> out = values(from.grad());
  out.push_back(values(x.grad())[0]);
  return out;
}

TEST_CASE("scatter_reduce: infinite extremes without the present value") {
  const double inf = std::numeric_limits<double>::infinity();
  for (const auto& [reduce, value] :
       {std::pair{ScatterReduce::kAmax, -inf}, {ScatterReduce::kAmin, inf}}) {
    const ScatterReduceOptions options{.reduce = reduce, .include_self = false};
    const auto gradients = [&](const std::vector<double>& from) {
      const auto n = static_cast<std::int64_t>(from.size());
      const Variable x(Tensor::from_vector<double>({0, 5}, {2}), true),
          src(Tensor::from_vector(from, {n}), true);
      const Tensor first = zeros({n}, {.dtype = DType::kI64});
      backward(sum(scatter_reduce(x, 0, first, src, options)));
      CHECK(values(x.grad()) == std::vector<double>{0, 1});
      return values(src.grad());
    };
    CHECK(gradients({value}) == std::vector<double>{1});
    CHECK(gradients({value, value}) == std::vector<double>{0.5, 0.5});
  }
}

TEST_CASE("scatter_reduce: a mean of more elements than 16 bits can count") {
  for (const auto& [dtype, n] :
       {std::pair<DType, std::int64_t>{DType::kBF16, 257}, {DType::kF16, 70001}}) {
    const TensorOptions half{.dtype = dtype};
    const Tensor first = zeros({n}, {.dtype = DType::kI64});
    for (bool include_self : {false, true}) {
      INFO(dtype_name(dtype) << " " << include_self);
      const Variable x(zeros({1}, half), true), src(ones({n}, half), true);
      const Variable y = scatter_reduce(
          x, 0, first, src, {.reduce = ScatterReduce::kMean, .include_self = include_self});
      backward(sum(y));
      const double count = static_cast<double>(n + (include_self ? 1 : 0));
      CHECK(src.grad().dtype() == dtype);
      CHECK(values(src.grad())[3] == values(full({1}, 1 / count, half))[0]);
      CHECK(values(x.grad())[0] == (include_self ? values(src.grad())[3] : 0));
    }
  }
}

TEST_CASE("scatter_reduce: zeros in a product, equal extremes, NaN") {
  CHECK(gradient_of_product({3, 5}) == std::vector<double>{10, 6, 15});
  CHECK(gradient_of_product({0, 5}) == std::vector<double>{10, 0, 0});
  CHECK(gradient_of_product({0, 0, 3}) == std::vector<double>{0, 0, 0, 0});
  const Variable x(Tensor::from_vector<double>({4, 1}, {2}), true),
      src(Tensor::from_vector<double>({4, 3, 4}, {3}), true);
  const Variable y =
      scatter_reduce(x, 0, at({0, 0, 0}, {3}), src, {.reduce = ScatterReduce::kAmax});
  backward(sum(y));
  CHECK(values(x.grad()) == std::vector<double>{1. / 3, 1});
  CHECK(values(src.grad()) == std::vector<double>{1. / 3, 0, 1. / 3});
  const Variable whole(at({1, 2}, {2}));
  CHECK(scatter_reduce(whole, 0, at({0}, {1}), whole, {}).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{2, 2});
}

}  // namespace
}  // namespace tessera::testing
