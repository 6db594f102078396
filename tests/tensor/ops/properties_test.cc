// Random shapes and random views: operations must agree with index arithmetic. A failure is shrunk,
// and printed with the values that reproduce it.
#include <rapidcheck.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/tensor/ops/naive.h"
#include "tessera/tests/tensor/ops/ops_support.h"

namespace tessera {
namespace {

using namespace testing;
using naive::Array;
using naive::Index;

// Every run tries the same cases, unless the environment sets RC_PARAMS.
[[maybe_unused]] const int kConfigured =
    setenv("RC_PARAMS", "seed=20240607 max_success=100", /*overwrite=*/0);

// A tensor and the same elements as a plain array.
struct Pair {
  Tensor tensor;
  Array plain;
  int ndim() const { return static_cast<int>(plain.shape.size()); }
};

std::int64_t number(std::int64_t low, std::int64_t high) {  // both included
  return *rc::gen::inRange<std::int64_t>(low, high + 1);
}
std::size_t below(std::size_t count) {
  return static_cast<std::size_t>(number(0, static_cast<std::int64_t>(count) - 1));
}

Index random_shape(std::int64_t least_dims = 0) {
  Index shape(static_cast<std::size_t>(number(least_dims, 5)));
  for (std::int64_t& extent : shape) extent = number(0, 5);
  return shape;
}

// Small integers, which every dtype represents and sums exactly.
Pair random_pair(const Index& shape, DType dtype, std::int64_t low = -3) {
  Array plain = naive::filled(shape, 0);
  for (double& value : plain.values) value = static_cast<double>(number(low, 3));
  return {naive::tensor_of(plain, dtype), plain};
}

DType random_dtype() {
  return *rc::gen::element(DType::kF32, DType::kF64, DType::kI64, DType::kI32, DType::kBF16);
}

// A random view of x: of the tensor by its methods, of the array by indices.
Pair random_view(const Pair& x) {
  const auto n = x.plain.shape.size();
  const std::int64_t kind = number(0, 3);
  if (n == 0 || kind == 0) {  // a new dim that repeats
    if (n >= 5) return x;
    const std::int64_t count = number(0, 3);
    Index shape = x.plain.shape;
    shape.insert(shape.begin(), count);
    return {x.tensor.expand(naive::shape_of(shape)),
            naive::pick(x.plain, shape,
                        [](const Index& index) { return Index(index.begin() + 1, index.end()); })};
  }
  const std::size_t d = below(n);
  const int dim = static_cast<int>(d);
  if (kind == 1) {
    const std::size_t e = below(n);
    Index shape = x.plain.shape;
    std::swap(shape[d], shape[e]);
    return {x.tensor.transpose(dim, static_cast<int>(e)),
            naive::pick(x.plain, shape, [&](Index index) {
              std::swap(index[d], index[e]);
              return index;
            })};
  }
  if (kind == 2 || x.plain.shape[d] == 0) {
    const std::int64_t start = number(0, x.plain.shape[d]);
    const std::int64_t end = number(start, x.plain.shape[d]);
    Index shape = x.plain.shape;
    shape[d] = end - start;
    return {x.tensor.slice(dim, start, end), naive::pick(x.plain, shape, [&](Index index) {
              index[d] += start;
              return index;
            })};
  }
  const std::int64_t at = number(0, x.plain.shape[d] - 1);
  Index shape = x.plain.shape;
  shape.erase(shape.begin() + dim);
  return {x.tensor.select(dim, at), naive::pick(x.plain, shape, [&](Index index) {
            index.insert(index.begin() + dim, at);
            return index;
          })};
}

Pair random_views(const Pair& x) {
  Pair view = x;
  for (std::int64_t i = number(0, 3); i > 0; --i) view = random_view(view);
  return view;
}

// A tensor of exactly this shape with a random layout: part of a larger one with its dims swapped.
Pair laid_out(const Index& shape, DType dtype, std::int64_t low = -3) {
  if (shape.empty()) return random_pair(shape, dtype, low);
  const int a = static_cast<int>(below(shape.size())), b = static_cast<int>(below(shape.size()));
  const int d = static_cast<int>(below(shape.size()));
  Index larger = shape;
  larger[static_cast<std::size_t>(d)] += 2;
  std::swap(larger[static_cast<std::size_t>(a)], larger[static_cast<std::size_t>(b)]);
  const Tensor frame = Tensor::empty(naive::shape_of(larger), {.dtype = dtype});
  const Tensor view = frame.transpose(a, b).slice(d, 1, 1 + shape[static_cast<std::size_t>(d)]);
  const Pair values = random_pair(shape, dtype, low);
  copy_(view, values.tensor);
  return {view, values.plain};
}

// A shape that broadcasts to `shape`.
Index narrower(const Index& shape) {
  Index out(shape.begin() + number(0, static_cast<std::int64_t>(shape.size())), shape.end());
  for (std::int64_t& extent : out) {
    if (number(0, 2) == 0) extent = 1;
  }
  return out;
}

Array broadcast(const Array& x, const Index& shape) {
  return naive::pick(x, shape, [&](const Index& index) {
    Index from(index.end() - static_cast<std::ptrdiff_t>(x.shape.size()), index.end());
    for (std::size_t d = 0; d < from.size(); ++d) {
      if (x.shape[d] == 1) from[d] = 0;
    }
    return from;
  });
}

// Indices in [0, extent).
Pair random_indices(const Index& shape, std::int64_t extent) {
  Array plain = naive::filled(shape, 0);
  for (double& value : plain.values) value = static_cast<double>(number(0, extent - 1));
  return {naive::tensor_of(plain, number(0, 1) == 0 ? DType::kI64 : DType::kI32), plain};
}

Index replaced(Index index, std::size_t dim, double at) {
  index[dim] = static_cast<std::int64_t>(at);
  return index;
}

TEST_CASE("property: chains of views") {
  CHECK(rc::check("views hold the elements that indices name", [] {
    const Pair view = random_views(random_pair(random_shape(), random_dtype()));
    RC_ASSERT(naive::is_equal(view.tensor, view.plain));
    RC_ASSERT(naive::is_equal(clone(view.tensor), view.plain));
  }));
}

TEST_CASE("property: binary operations broadcast") {
  CHECK(rc::check("add, sub and mul of operands of any layout", [] {
    Index shape = random_shape();
    const DType dtype = random_dtype();
    Index a_shape = narrower(shape), b_shape = narrower(shape);
    const Pair a = laid_out(a_shape, dtype), b = laid_out(b_shape, dtype);
    const Shape common = broadcast_shapes(a.tensor.shape(), b.tensor.shape(), "test");
    const Index out(common.begin(), common.end());
    Array sums = broadcast(a.plain, out), differences = sums, products = sums;
    const Array right = broadcast(b.plain, out);
    for (std::size_t i = 0; i < right.values.size(); ++i) {
      sums.values[i] += right.values[i];
      differences.values[i] -= right.values[i];
      products.values[i] *= right.values[i];
    }
    RC_ASSERT(naive::is_equal(add(a.tensor, b.tensor), sums));
    RC_ASSERT(naive::is_equal(sub(a.tensor, b.tensor), differences));
    RC_ASSERT(naive::is_equal(mul(a.tensor, b.tensor), products));
  }));
}

TEST_CASE("property: reductions over any dims of any view") {
  CHECK(rc::check("sum, extremes, any and all", [] {
    const Pair x = random_views(random_pair(random_shape(), random_dtype()));
    std::vector<int> dims;
    for (int d = 0; d < x.ndim(); ++d) {
      if (number(0, 1) == 0) dims.push_back(number(0, 1) == 0 ? d : d - x.ndim());
    }
    const bool keep = number(0, 1) == 0;
    const auto expected = [&](auto fold) { return naive::reduce(x.plain, dims, keep, fold); };
    using List = std::vector<double>;
    RC_ASSERT(naive::is_equal(sum(x.tensor, dims, keep), expected([](const List& list) {
                                double total = 0;
                                for (double v : list) total += v;
                                return total;
                              })));
    RC_ASSERT(naive::is_equal(any(x.tensor, dims, keep), expected([](const List& list) {
                                return std::any_of(list.begin(), list.end(),
                                                   [](double v) { return v != 0; });
                              })));
    RC_ASSERT(naive::is_equal(all(x.tensor, dims, keep), expected([](const List& list) {
                                return std::all_of(list.begin(), list.end(),
                                                   [](double v) { return v != 0; });
                              })));
    if (x.tensor.numel() == 0) return;
    RC_ASSERT(naive::is_equal(amax(x.tensor, dims, keep), expected([](const List& list) {
                                return *std::max_element(list.begin(), list.end());
                              })));
    RC_ASSERT(naive::is_equal(amin(x.tensor, dims, keep), expected([](const List& list) {
                                return *std::min_element(list.begin(), list.end());
                              })));
  }));
}

TEST_CASE("property: gather, scatter, scatter_add") {
  CHECK(rc::check("along any dim, with repeated indices", [] {
    const DType dtype = random_dtype();
    Index shape = random_shape(1);
    const std::size_t d = below(shape.size());
    const int dim = static_cast<int>(d);
    shape[d] = std::max<std::int64_t>(shape[d], 1);
    Index chosen = shape;
    for (std::int64_t& extent : chosen) extent = number(0, extent);
    chosen[d] = number(0, 6);
    const Pair x = laid_out(shape, dtype), src = laid_out(chosen, dtype);
    const Pair at = random_indices(chosen, shape[d]);
    Array assigned = x.plain, added = x.plain;
    naive::for_each_index(chosen, [&](const Index& index) {
      assigned.at(replaced(index, d, at.plain.at(index))) = src.plain.at(index);
      added.at(replaced(index, d, at.plain.at(index))) += src.plain.at(index);
    });
    RC_ASSERT(naive::is_equal(gather(x.tensor, dim, at.tensor),
                              naive::pick(x.plain, chosen, [&](const Index& index) {
                                return replaced(index, d, at.plain.at(index));
                              })));
    RC_ASSERT(naive::is_equal(scatter(x.tensor, dim, at.tensor, src.tensor), assigned));
    RC_ASSERT(naive::is_equal(scatter_add(x.tensor, dim, at.tensor, src.tensor), added));
  }));
}

TEST_CASE("property: index_select, index and index_put") {
  CHECK(rc::check("by lists of indices that broadcast", [] {
    const DType dtype = random_dtype();
    Index shape = random_shape(1);
    const std::size_t count = 1 + below(shape.size());
    for (std::size_t d = 0; d < count; ++d) shape[d] = std::max<std::int64_t>(shape[d], 1);
    const Pair x = laid_out(shape, dtype);
    const Pair list = random_indices({number(0, 4)}, shape[0]);
    Index selected = shape;
    selected[0] = list.plain.shape[0];
    RC_ASSERT(naive::is_equal(index_select(x.tensor, 0, list.tensor),
                              naive::pick(x.plain, selected, [&](const Index& index) {
                                return replaced(index, 0, list.plain.at({index[0]}));
                              })));

    const Index common = {number(0, 3), number(1, 3)};
    std::vector<Tensor> indices = {random_indices(common, shape[0]).tensor};
    for (std::size_t d = 1; d < count; ++d)
      indices.push_back(random_indices(narrower(common), shape[d]).tensor);
    std::vector<Array> places;
    for (const Tensor& index : indices) places.push_back(broadcast(naive::array_of(index), common));
    Index result = common;
    result.insert(result.end(), shape.begin() + static_cast<std::ptrdiff_t>(count), shape.end());
    const auto source = [&](const Index& index) {
      Index from;
      for (const Array& place : places)
        from.push_back(static_cast<std::int64_t>(place.at({index[0], index[1]})));
      from.insert(from.end(), index.begin() + 2, index.end());
      return from;
    };
    RC_ASSERT(naive::is_equal(index(x.tensor, indices), naive::pick(x.plain, result, source)));
    const Pair values = random_pair(narrower(result), dtype);
    const Array all = broadcast(values.plain, result);
    Array assigned = x.plain, added = x.plain;
    naive::for_each_index(result, [&](const Index& index) {
      assigned.at(source(index)) = all.at(index);
      added.at(source(index)) += all.at(index);
    });
    RC_ASSERT(naive::is_equal(index_put(x.tensor, indices, values.tensor), assigned));
    RC_ASSERT(
        naive::is_equal(index_put(x.tensor, indices, values.tensor, {.accumulate = true}), added));
  }));
}

TEST_CASE("property: split and cat undo each other, so do pad, roll and flip twice") {
  CHECK(rc::check("on any view", [] {
    const Pair x = random_views(random_pair(random_shape(1), random_dtype()));
    if (x.ndim() == 0) return;
    const int dim = static_cast<int>(below(x.plain.shape.size()));
    const std::int64_t shift = number(-7, 7), before = number(0, 2), after = number(0, 2);
    RC_ASSERT(naive::is_equal(cat(split(x.tensor, number(1, 4), dim), dim), x.plain));
    RC_ASSERT(naive::is_equal(cat(chunk(x.tensor, number(1, 4), dim), dim), x.plain));
    RC_ASSERT(naive::is_equal(flip(flip(x.tensor, {dim}), {dim}), x.plain));
    RC_ASSERT(naive::is_equal(roll(roll(x.tensor, shift, dim), -shift, dim), x.plain));
    const Tensor padded = pad(x.tensor, {{before, after}}, 9);
    RC_ASSERT(naive::is_equal(pad(padded, {{-before, -after}}), x.plain));
  }));
}

}  // namespace
}  // namespace tessera
