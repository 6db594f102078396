// Masks and positions against plain loops: every dtype and layout, no elements and one, errors.
#include "tessera/tensor/ops/mask.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/index.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/naive.h"
#include "tessera/tests/tensor/ops/ops_support.h"

namespace tessera {
namespace {

using namespace testing;
using naive::Array;
using naive::Index;
using Numbers = std::vector<std::int64_t>;

const std::vector<Shape> kShapes = {{},        {1},       {7},         {3, 5},
                                    {2, 0, 3}, {1, 4, 1}, {70, 3, 11}, {5000}};

// About half of the elements are 0.
Tensor half_zero(const Shape& shape, DType dtype = DType::kBool) {
  return cast(maximum(spread_tensor<double>(shape, -6, 6), 0), dtype);
}

// The positions of the elements that are not 0, one after another.
Numbers positions_of(const Array& x) {
  Numbers out;
  naive::for_each_index(x.shape, [&](const Index& index) {
    if (x.at(index) != 0) out.insert(out.end(), index.begin(), index.end());
  });
  return out;
}

TEST_CASE("nonzero: every dtype and layout") {
  for (DType dtype : kAllDTypes) {
    for (const Shape& shape : kShapes) {
      const Tensor x = half_zero(shape, dtype);
      const Array plain = naive::array_of(x);
      const Numbers expected = positions_of(plain);
      std::int64_t count = 0;
      naive::for_each_index(plain.shape,
                            [&](const Index& index) { count += plain.at(index) != 0; });
      for (const Tensor& layout : layouts(x)) {
        INFO(dtype_name(dtype) << shape.str() << layout.strides().str());
        const Tensor y = nonzero(layout);
        CHECK(y.dtype() == DType::kI64);
        CHECK(y.shape() == Shape{count, shape.ndim()});
        CHECK(y.to_vector<std::int64_t>() == expected);
        const std::vector<Tensor> columns = nonzero_as_tuple(layout);
        REQUIRE(columns.size() == static_cast<std::size_t>(std::max(shape.ndim(), 1)));
        for (int d = 0; d < shape.ndim(); ++d)
          CHECK(all_equal(columns[static_cast<std::size_t>(d)], contiguous(y.select(1, d))));
      }
    }
  }
  CHECK(nonzero_as_tuple(Tensor::scalar(5))[0].to_vector<std::int64_t>() == Numbers{0});
  CHECK(nonzero_as_tuple(Tensor::scalar(0))[0].numel() == 0);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor odd = Tensor::from_vector<double>({0, -0.0, nan, 1e-300}, {4});
  CHECK(nonzero(odd).to_vector<std::int64_t>() == Numbers{2, 3});
}

TEST_CASE("nonzero_static: cut off and filled up") {
  const Tensor x = Tensor::from_vector<float>({0, 3, 0, 1, 2, 5}, {2, 3});
  const auto rows = [&](std::int64_t size, std::int64_t fill) {
    return nonzero_static(x, size, fill).to_vector<std::int64_t>();
  };
  CHECK(rows(6, -1) == Numbers{0, 1, 1, 0, 1, 1, 1, 2, -1, -1, -1, -1});
  CHECK(rows(4, 7) == Numbers{0, 1, 1, 0, 1, 1, 1, 2});
  CHECK(rows(2, 7) == Numbers{0, 1, 1, 0});
  CHECK(rows(0, 7).empty());
  CHECK(nonzero_static(zeros({0, 3}), 2, 9).to_vector<std::int64_t>() == Numbers{9, 9, 9, 9});
  CHECK(nonzero_static(zeros({2}, {.device = kNull}), 2).shape() == Shape{2, 1});
  for (std::int64_t size : {1000, 2500, 4000, 6000}) {
    const Tensor mask = half_zero({5000});
    Numbers expected = positions_of(naive::array_of(mask));
    expected.resize(static_cast<std::size_t>(size), -5);
    CHECK(nonzero_static(mask, size, -5).to_vector<std::int64_t>() == expected);
  }
  CHECK(thrown<InvalidArgument>([&] { nonzero_static(x, -1); }) ==
        "[nonzero_static] the size is -1; it must not be negative");
}

TEST_CASE("nonzero and masked_select: the same for any number of threads") {
  const Tensor mask = half_zero({300, 401}), x = spread_tensor<float>({300, 401});
  CHECK(same_for_any_threads([&] { return bits_of(nonzero(mask)); }));
  CHECK(same_for_any_threads([&] { return masked_select(x, mask).to_vector<float>(); }));
}

struct Pair {
  Shape x, mask;
};
const std::vector<Pair> kPairs = {
    {{3, 5}, {3, 5}}, {{3, 5}, {5}}, {{5}, {3, 5}}, {{3, 1}, {5}},      {{}, {4}},
    {{2, 0, 3}, {3}}, {{1}, {1}},    {{4}, {}},     {{70, 9}, {70, 1}}, {{2, 3, 4}, {3, 1}}};

// The element of x that broadcasting puts at `index`.
double spread_at(const Array& x, const Index& index) {
  Index own(index.end() - static_cast<std::ptrdiff_t>(x.shape.size()), index.end());
  for (std::size_t d = 0; d < own.size(); ++d) own[d] = x.shape[d] == 1 ? 0 : own[d];
  return x.at(own);
}

TEST_CASE("masked_select, masked_scatter, masked_fill: every dtype, layout and broadcast") {
  for (DType dtype : kAllDTypes) {
    for (const Pair& pair : kPairs) {
      const Shape shape = broadcast_shapes(pair.x, pair.mask, "test");
      const Tensor x = cast(spread_tensor<double>(pair.x, -9, 9), dtype),
                   mask = half_zero(pair.mask),
                   source = cast(spread_tensor<double>({shape.numel() + 2}, 1, 9), dtype);
      const Array plain = naive::array_of(x), set = naive::array_of(mask),
                  given = naive::array_of(source);
      const Index all(shape.begin(), shape.end());
      Array scattered = naive::filled(all, 0), filled = scattered;
      std::vector<double> selected;
      naive::for_each_index(all, [&](const Index& index) {
        const double old = spread_at(plain, index);
        const bool is_set = spread_at(set, index) != 0;
        scattered.at(index) = is_set ? given.values[selected.size()] : old;
        filled.at(index) = is_set ? 1 : old;
        if (is_set) selected.push_back(old);
      });
      const std::vector<Tensor> masks = layouts(mask);
      for (const Tensor& layout : layouts(x)) {
        const Tensor& m = masks[masks.size() - 1];
        INFO(dtype_name(dtype) << pair.x.str() << pair.mask.str() << layout.strides().str());
        const Tensor y = masked_select(layout, m);
        CHECK(y.dtype() == dtype);
        CHECK(cast(y, DType::kF64).to_vector<double>() == selected);
        CHECK(naive::is_equal(masked_scatter(layout, m, source), scattered));
        CHECK(naive::is_equal(masked_fill(layout, m, 1), filled));
        const Tensor one =
            Tensor::scalar(1, {.dtype = is_floating(dtype) ? DType::kF64 : DType::kU8});
        CHECK(masked_fill(layout, m, one).dtype() == dtype);
        CHECK(naive::is_equal(masked_fill(layout, m, one), filled));
        if (shape == pair.x) {
          const Tensor& a = layout;
          masked_scatter_(a, m, source);
          CHECK(naive::is_equal(a, scattered));
          copy_(a, naive::tensor_of(plain, dtype));
          masked_fill_(a, m, one);
          CHECK(naive::is_equal(a, filled));
          copy_(a, naive::tensor_of(plain, dtype));
        }
      }
    }
  }
}

TEST_CASE("masked_fill: adjacent elements of every width and number, in place too") {
  for (DType dtype : kAllDTypes) {
    for (const std::int64_t n : {0, 1, 7, 31, 32, 33, 100}) {
      const Tensor x = cast(spread_tensor<double>({n}, -9, 9), dtype), mask = half_zero({n});
      const Array plain = naive::array_of(x), set = naive::array_of(mask);
      Array filled = plain;
      for (std::size_t i = 0; i < filled.values.size(); ++i)
        if (set.values[i] != 0) filled.values[i] = 1;
      INFO(dtype_name(dtype) << n);
      CHECK(naive::is_equal(masked_fill(x, mask, 1), filled));
      CHECK(naive::is_equal(x, plain));
      masked_fill_(x, mask, 1);
      CHECK(naive::is_equal(x, filled));
    }
  }
}

TEST_CASE("index and index_put with masks") {
  const Tensor x = spread_tensor<float>({4, 3, 5});
  const Tensor rows = half_zero({4}), planes = half_zero({4, 3}), whole = gt(x, 0),
               columns = half_zero({3});
  const auto where = [](const Tensor& mask) { return nonzero_as_tuple(mask); };
  CHECK(all_equal(index(x, {rows}), index(x, where(rows))));
  CHECK(index(x, {rows}).shape() == Shape{nonzero(rows).dim(0), 3, 5});
  CHECK(all_equal(index(x, {planes}), index(x, where(planes))));
  CHECK(all_equal(index(x, {whole}), masked_select(x, whole)));
  const Tensor one = full({}, 1, {.dtype = DType::kI64});
  CHECK(all_equal(index(x, {one, columns}), index(x, {one, where(columns)[0]})));
  const Tensor none = zeros({4}, {.dtype = DType::kBool});
  CHECK(index(x, {none}).shape() == Shape{0, 3, 5});
  CHECK(all_equal(index_put(x, {whole}, zeros({})), masked_fill(x, whole, 0)));
  CHECK(all_equal(index_put(x, {rows}, ones({3, 5})), masked_fill(x, rows.view({4, 1, 1}), 1)));
  CHECK(all_equal(index_put(x, {whole}, ones({}), {.accumulate = true}),
                  add(x, cast(whole, DType::kF32))));
  const Tensor strided = x.transpose(0, 2);
  CHECK(all_equal(index_put(strided, {gt(strided, 0)}, zeros({})), minimum(strided, 0)));
  const Tensor written = clone(x);
  index_put_(written, {whole}, zeros({}));
  CHECK(all_equal(written, minimum(x, 0)));
  index_put_(written.transpose(0, 2), {lt(written.transpose(0, 2), 0)}, zeros({}));
  CHECK(all_equal(written, zeros({4, 3, 5})));
}

TEST_CASE("masks: errors") {
  const auto text = [](auto body) { return thrown<InvalidArgument>(body); };
  const Tensor x = zeros({2, 3}), flags = ones({2, 3}, {.dtype = DType::kBool});
  const Tensor bytes = ones({2, 3}, {.dtype = DType::kU8});
  const Tensor repeats = zeros({1, 3}).expand({2, 3});
  CHECK(text([&] { masked_select(x, bytes); }) ==
        "[masked_select] the mask has dtype u8; it must be bool");
  CHECK(text([&] { index(x, {ones({3}, {.dtype = DType::kBool})}); }) ==
        "[index] a mask of shape [3] stands for the dims of [2, 3] from dim 0 on; give it their "
        "extents");
  CHECK_THAT(text([&] {
               index_put(x, {flags, flags}, zeros({}));
             }),
             Catch::Contains("[index_put] a mask of shape [2, 3] stands for"));
  CHECK_THAT(text([&] { index(x, {ones({}, {.dtype = DType::kBool})}); }),
             Catch::Contains("[index] a mask of shape []"));
  CHECK(text([&] { masked_fill(x, flags, zeros({1})); }) ==
        "[masked_fill] the value has shape [1]; it must be a number or a 0-d tensor");
  CHECK(text([&] { masked_fill(bytes, flags, zeros({})); }) ==
        "[masked_fill] the value is f32, and the tensor u8; cast one of them");
  CHECK(
      thrown_by_kernel<InvalidArgument>([&] { masked_scatter(x, flags, zeros({0})); }) ==
      "[masked_scatter] elements of the mask are set, and the source has none; give one for each");
  CHECK(all_equal(masked_scatter(x, logical_not(flags), zeros({0})), x));
  CHECK(thrown_by_kernel<InvalidArgument>([&] { masked_scatter(x, flags, zeros({5})); }) ==
        "[masked_scatter] more than 5 elements of the mask are set, and the source has 5; give one "
        "for each");
  CHECK(all_equal(masked_scatter(x, flags, ones({6})), ones({2, 3})));
  CHECK(masked_scatter(zeros({0, 3}), flags.slice(0, 0, 0), zeros({0})).shape() == Shape{0, 3});
  CHECK(thrown_by_kernel<InvalidArgument>([&] {
          masked_scatter_(x, flags, zeros({4}));
        }).find("elements of the mask are set, and the source has 4; give one for each") !=
        std::string::npos);
  CHECK_THAT(text([&] { masked_scatter_(repeats, flags, zeros({6})); }),
             Catch::Contains("[masked_scatter_] dim 0 of the tensor written to repeats"));
  CHECK_THAT(text([&] { index_put_(repeats, {flags}, zeros({})); }),
             Catch::Contains("[index_put_] dim 0 of the tensor written to repeats"));
  CHECK(thrown<StateError>([&] { nonzero(zeros({2}, {.device = kNull})); }) ==
        "[nonzero] the number of elements that are set depends on values, and tensors on the null "
        "device have none; use nonzero_static with a size, and its positions as indices");
}

}  // namespace
}  // namespace tessera
