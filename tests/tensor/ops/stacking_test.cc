// Stacking, splitting, grids and diagonals: values of PyTorch, and index arithmetic for every dtype
// and layout.
#include "tessera/tensor/ops/stacking.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/diagonal.h"
#include "tessera/tensor/ops/shape.h"
#include "tessera/tensor/ops/view.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/naive.h"
#include "tessera/tests/tensor/ops/ops_support.h"

namespace tessera {
namespace {

using namespace testing;
using naive::Array;
using naive::Index;
using Numbers = std::vector<double>;

// 0, 1, 2, ... in `shape`.
Tensor counting(const Shape& shape) { return arange(shape.numel()).view(shape); }
Tensor list(const Numbers& values) {
  return Tensor::from_vector(values, {static_cast<std::int64_t>(values.size())});
}
Numbers values(const Tensor& x) { return cast(x, DType::kF64).to_vector<double>(); }

TEST_CASE("atleast") {
  const Tensor scalar = zeros({}), row = zeros({4}), matrix = zeros({4, 5}),
               cube = zeros({2, 3, 4});
  CHECK(atleast_1d(scalar).shape() == Shape{1});
  CHECK(atleast_2d(scalar).shape() == Shape{1, 1});
  CHECK(atleast_3d(scalar).shape() == Shape{1, 1, 1});
  CHECK(atleast_1d(row).shape() == Shape{4});
  CHECK(atleast_2d(row).shape() == Shape{1, 4});
  CHECK(atleast_3d(row).shape() == Shape{1, 4, 1});
  CHECK(atleast_2d(matrix).shape() == Shape{4, 5});
  CHECK(atleast_3d(matrix).shape() == Shape{4, 5, 1});
  CHECK(atleast_3d(cube).shape() == Shape{2, 3, 4});
  CHECK(atleast_3d(matrix).storage() == matrix.storage());
}

TEST_CASE("hstack, vstack, dstack, column_stack, block_diag") {
  const Tensor a = list({1, 2}), b = list({3, 4}), one = Tensor::scalar(1), two = Tensor::scalar(2);
  CHECK(values(hstack({one, two})) == Numbers{1, 2});
  CHECK(values(hstack({a, b})) == Numbers{1, 2, 3, 4});
  CHECK(all_equal(hstack({counting({2, 3}), counting({2, 1})}),
                  cat({counting({2, 3}), counting({2, 1})}, 1)));
  CHECK(vstack({one, two}).shape() == Shape{2, 1});
  CHECK(all_equal(vstack({a, b}), stack({a, b})));
  CHECK(all_equal(row_stack({a, b.view({1, 2})}), stack({a, b})));
  CHECK(dstack({a, b}).shape() == Shape{1, 2, 2});
  CHECK(values(dstack({a, b})) == Numbers{1, 3, 2, 4});
  CHECK(values(column_stack({a, b.view({2, 1})})) == Numbers{1, 3, 2, 4});
  CHECK(column_stack({one.view({}), two}).shape() == Shape{1, 2});
  const Tensor blocks = block_diag({counting({1}).view({}), counting({2}), counting({2, 3})});
  CHECK(blocks.shape() == Shape{4, 6});
  CHECK(values(blocks) ==
        Numbers{0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3, 4, 5});
  CHECK(block_diag({zeros({0, 2}), ones({1, 1})}).shape() == Shape{1, 3});
  for (DType dtype : kAllDTypes)
    CHECK(hstack({ones({2}, {.dtype = dtype}), ones({2}, {.dtype = dtype})}).dtype() == dtype);
}

std::vector<Numbers> all_values(const std::vector<Tensor>& tensors) {
  std::vector<Numbers> out;
  for (const Tensor& x : tensors) out.push_back(values(x));
  return out;
}

TEST_CASE("tensor_split, hsplit, vsplit, dsplit") {
  const Tensor five = counting({5}), x = counting({2, 3});
  using Starts = std::vector<std::int64_t>;
  CHECK(all_values(tensor_split(five, 3)) == std::vector<Numbers>{{0, 1}, {2, 3}, {4}});
  CHECK(all_values(tensor_split(five, 7))[5].empty());
  CHECK(all_values(tensor_split(five, Starts{1, 7})) ==
        std::vector<Numbers>{{0}, {1, 2, 3, 4}, {}});
  CHECK(all_values(tensor_split(five, Starts{3, 1})) ==
        std::vector<Numbers>{{0, 1, 2}, {}, {1, 2, 3, 4}});
  CHECK(all_values(tensor_split(five, Starts{-2})) == std::vector<Numbers>{{0, 1, 2}, {3, 4}});
  CHECK(all_values(tensor_split(x, 2, -1)) == std::vector<Numbers>{{0, 1, 3, 4}, {2, 5}});
  CHECK(tensor_split(x, 2, 1)[1].storage() == x.storage());
  CHECK(all_values(hsplit(x, 3)) == std::vector<Numbers>{{0, 3}, {1, 4}, {2, 5}});
  CHECK(all_values(hsplit(five, Starts{2})) == std::vector<Numbers>{{0, 1}, {2, 3, 4}});
  CHECK(all_values(vsplit(x, 2)) == std::vector<Numbers>{{0, 1, 2}, {3, 4, 5}});
  CHECK(all_values(dsplit(counting({1, 1, 4}), 2)) == std::vector<Numbers>{{0, 1}, {2, 3}});
  CHECK(all_values(dsplit(counting({1, 1, 4}), Starts{1, 1})) ==
        std::vector<Numbers>{{0}, {}, {1, 2, 3}});
  const auto text = [](auto body) { return thrown<InvalidArgument>(body); };
  CHECK(text([&] { hsplit(x, 2); }) ==
        "[hsplit] dim 1 of shape [2, 3] does not split into 2 equal sections; use tensor_split");
  CHECK(text([&] { vsplit(five, 2); }) ==
        "[vsplit] needs at least 2 dims, got shape [5]; unsqueeze it");
  CHECK(text([&] { dsplit(x, 2); }) ==
        "[dsplit] needs at least 3 dims, got shape [2, 3]; unsqueeze it");
  CHECK(text([&] { tensor_split(x, 0); }) ==
        "[tensor_split] the number of sections is 0; it must be at least 1");
  CHECK_THAT(text([&] { hsplit(zeros({}), 1); }),
             Catch::Contains("[hsplit] needs at least 1 dims"));
}

TEST_CASE("broadcast_tensors, meshgrid, cartesian_prod") {
  const std::vector<Tensor> both = broadcast_tensors({counting({2}), counting({3, 1})});
  CHECK(all_values(both) == std::vector<Numbers>{{0, 1, 0, 1, 0, 1}, {0, 0, 1, 1, 2, 2}});
  CHECK(broadcast_tensors({zeros({0}), ones({1}, {.dtype = DType::kI64})})[1].shape() == Shape{0});
  const Tensor a = list({1, 2}), b = list({3, 4, 5}), c = Tensor::scalar(6, {.dtype = DType::kF64});
  const std::vector<Tensor> ij = meshgrid({a, b, c}), xy = meshgrid({a, b, c}, MeshIndexing::kXY);
  CHECK(ij[0].shape() == Shape{2, 3, 1});
  CHECK(all_values(ij) ==
        std::vector<Numbers>{{1, 1, 1, 2, 2, 2}, {3, 4, 5, 3, 4, 5}, {6, 6, 6, 6, 6, 6}});
  CHECK(xy[1].shape() == Shape{3, 2, 1});
  CHECK(all_values(xy) ==
        std::vector<Numbers>{{1, 2, 1, 2, 1, 2}, {3, 3, 4, 4, 5, 5}, {6, 6, 6, 6, 6, 6}});
  CHECK(all_values(meshgrid({a}, MeshIndexing::kXY)) == std::vector<Numbers>{{1, 2}});
  CHECK(values(cartesian_prod({a, b})) == Numbers{1, 3, 1, 4, 1, 5, 2, 3, 2, 4, 2, 5});
  CHECK(cartesian_prod({a, b, zeros({0}, {.dtype = DType::kF64})}).shape() == Shape{0, 3});
  CHECK(values(cartesian_prod({a})) == Numbers{1, 2});
}

TEST_CASE("lists: errors") {
  const auto text = [](auto body) { return thrown<InvalidArgument>(body); };
  CHECK(text([&] { hstack({}); }) == "[hstack] the list of tensors is empty; give at least one");
  CHECK(text([&] { broadcast_tensors({}); }) ==
        "[broadcast_tensors] the list of tensors is empty; give at least one");
  CHECK(text([&] {
          vstack({zeros({2}), zeros({3})});
        }) == "[vstack] shapes [1, 2] and [1, 3] do not fit; they may differ in dim 0 only");
  CHECK(text([&] {
          block_diag({zeros({1, 1, 1})});
        }) == "[block_diag] a block has shape [1, 1, 1]; blocks have at most 2 dims");
  CHECK(text([&] {
          meshgrid({zeros({1, 1})});
        }) == "[meshgrid] a tensor has shape [1, 1]; give tensors of at most 1 dim");
}

TEST_CASE("diagonal, diag, diag_embed, trace: every dtype, layout, offset") {
  for (DType dtype : kAllDTypes) {
    for (const Shape& shape : {Shape{3, 5}, Shape{5, 3}, Shape{4, 4}, Shape{1, 1}, Shape{0, 3}}) {
      const Tensor x = cast(spread_tensor<double>(shape, -9, 9), dtype);
      const Array plain = naive::array_of(x);
      for (const Tensor& layout : layouts(x)) {
        for (std::int64_t offset : {-7, -3, -1, 0, 1, 2, 9}) {
          INFO(dtype_name(dtype) << shape.str() << " offset " << offset);
          Numbers expected;
          for (std::int64_t i = 0; i < shape[0]; ++i) {
            if (i + offset >= 0 && i + offset < shape[1])
              expected.push_back(plain.at({i, i + offset}));
          }
          CHECK(layout.diagonal(offset).storage() == layout.storage());
          CHECK(values(diagonal(layout, offset)) == expected);
          CHECK(values(diagonal(layout, -offset, -1, 0)) == expected);
          CHECK(values(diag(layout, offset)) == expected);
        }
        if (dtype == DType::kBool) continue;
        double sum = 0;
        for (std::int64_t i = 0; i < std::min(shape[0], shape[1]); ++i) sum += plain.at({i, i});
        CHECK(std::abs(values(trace(layout))[0] - sum) <= 0.05 * (1 + std::abs(sum)));
        CHECK(trace(layout).dtype() == (is_floating(dtype) ? dtype : DType::kI64));
      }
    }
    for (std::int64_t offset : {-2, 0, 1}) {
      const Tensor x = cast(spread_tensor<double>({2, 3}, 1, 9), dtype);
      const std::int64_t size = 3 + std::abs(offset);
      for (const Tensor& layout : layouts(x)) {
        const Tensor y = diag_embed(layout, offset);
        CHECK(y.shape() == Shape{2, size, size});
        CHECK(all_equal(contiguous(y.diagonal(offset, 1, 2)), x));
        CHECK(values(y).size() == static_cast<std::size_t>(2 * size * size));
        Numbers rest = values(y);
        std::int64_t set = 0;
        for (double v : rest) set += v != 0;
        CHECK(set == 6);
        CHECK(all_equal(diag_embed(layout, offset, 0, 2), contiguous(y.permute({1, 0, 2}))));
        CHECK(all_equal(diag_embed(layout, offset, 2, 1), contiguous(y.transpose(1, 2))));
        CHECK(all_equal(diag(layout.select(0, 1), offset), contiguous(y.select(0, 1))));
      }
    }
  }
}

TEST_CASE("diagonals of cubes and of nothing; errors") {
  const Tensor cube = counting({2, 3, 4});
  CHECK(cube.diagonal(1, 0, 2).shape() == Shape{3, 2});
  CHECK(values(cube.diagonal(1, 0, 2)) == Numbers{1, 14, 5, 18, 9, 22});
  CHECK(diag(zeros({0}), 2).shape() == Shape{2, 2});
  CHECK(diag_embed(zeros({0}), -1).shape() == Shape{1, 1});
  const auto text = [](auto body) { return thrown<InvalidArgument>(body); };
  CHECK(text([&] { (void)cube.diagonal(0, 1, -2); }) ==
        "[diagonal] both dims are 1; name two different ones");
  CHECK(text([&] { diag_embed(zeros({3}), 0, 1, -1); }) ==
        "[diag_embed] both dims are 1; name two different ones");
  CHECK(text([&] { diag(cube); }) ==
        "[diag] needs a matrix or a tensor of 1 dim, got shape [2, 3, 4]");
  CHECK(text([&] { trace(cube); }) == "[trace] needs a matrix, got shape [2, 3, 4]");
  CHECK_THAT(text([&] {
               trace(zeros({2, 2}, {.dtype = DType::kBool}));
             }),
             Catch::Contains("[trace] bool values cannot be added"));
}

TEST_CASE("tril_indices and triu_indices") {
  CHECK(values(tril_indices(3, 2, -1)) == Numbers{1, 2, 2, 0, 0, 1});
  CHECK(values(triu_indices(2, 3, 1)) == Numbers{0, 0, 1, 1, 2, 2});
  CHECK(tril_indices(0, 2).shape() == Shape{2, 0});
  CHECK(triu_indices(2, 3, 0, {.dtype = DType::kI32}).dtype() == DType::kI32);
  for (std::int64_t diagonal = -6; diagonal <= 6; ++diagonal) {
    Numbers rows, columns;
    for (std::int64_t i = 0; i < 4; ++i) {
      for (std::int64_t j = 0; j < 5; ++j) {
        if (j - i < diagonal) continue;
        rows.push_back(static_cast<double>(i));
        columns.push_back(static_cast<double>(j));
      }
    }
    rows.insert(rows.end(), columns.begin(), columns.end());
    CHECK(values(triu_indices(4, 5, diagonal)) == rows);
    CHECK(tril_indices(4, 5, diagonal - 1).dim(1) + triu_indices(4, 5, diagonal).dim(1) == 20);
  }
  const auto text = [](auto body) { return thrown<InvalidArgument>(body); };
  CHECK(text([&] { tril_indices(-1, 2); }) ==
        "[tril_indices] -1 rows and 2 columns must not be negative");
  CHECK(text([&] { triu_indices(1, 2, 0, {.dtype = DType::kF32}); }) ==
        "[triu_indices] the dtype is f32; it must be i64 or i32");
}

}  // namespace
}  // namespace tessera
