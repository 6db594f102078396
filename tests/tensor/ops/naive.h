// Arrays as plain lists of numbers, for references that share no code with the library: every
// element is found by index arithmetic.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/tensor.h"

namespace tessera::testing::naive {

using Index = std::vector<std::int64_t>;

struct Array {
  Index shape;
  std::vector<double> values;  // row-major

  double& at(const Index& index) { return values[position(index)]; }
  double at(const Index& index) const { return values[position(index)]; }
  std::size_t position(const Index& index) const {
    std::int64_t flat = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) flat = flat * shape[d] + index[d];
    return static_cast<std::size_t>(flat);
  }
};

inline std::int64_t count_of(const Index& shape) {
  std::int64_t n = 1;
  for (std::int64_t extent : shape) n *= extent;
  return n;
}

inline Array filled(const Index& shape, double value) {
  return {shape, std::vector<double>(static_cast<std::size_t>(count_of(shape)), value)};
}

// body(index) for every index of `shape`, in row-major order.
template <class Body>
void for_each_index(const Index& shape, const Body& body) {
  if (count_of(shape) == 0) return;
  Index index(shape.size(), 0);
  for (;;) {
    body(index);
    std::size_t d = shape.size();
    while (d > 0 && ++index[d - 1] == shape[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

// The array of `shape` whose element at an index is x's element at source(index).
template <class Source>
Array pick(const Array& x, const Index& shape, const Source& source) {
  Array out = filled(shape, 0);
  for_each_index(shape, [&](const Index& index) { out.at(index) = x.at(source(index)); });
  return out;
}

inline Array array_of(const Tensor& x) {
  return {Index(x.shape().begin(), x.shape().end()), cast(x, DType::kF64).to_vector<double>()};
}

inline Shape shape_of(const Index& shape) { return Shape(std::span(shape)); }

inline Tensor tensor_of(const Array& x, DType dtype = DType::kF64) {
  return cast(Tensor::from_vector(x.values, shape_of(x.shape)), dtype);
}

// `fold` computes a result from the list of its elements in row-major order. No dims: all.
template <class Fold>
Array reduce(const Array& x, const std::vector<int>& dims, bool keep_dims, const Fold& fold) {
  const auto ndim = static_cast<int>(x.shape.size());
  std::vector<bool> reduced(x.shape.size(), dims.empty());
  for (int dim : dims) reduced[static_cast<std::size_t>((dim + ndim) % ndim)] = true;
  Index kept = x.shape;
  for (std::size_t d = 0; d < kept.size(); ++d) {
    if (reduced[d]) kept[d] = 1;
  }
  Array out = filled(kept, 0);
  std::vector<std::vector<double>> lists(out.values.size());
  for_each_index(x.shape, [&](Index index) {
    const double value = x.at(index);
    for (std::size_t d = 0; d < kept.size(); ++d) {
      if (reduced[d]) index[d] = 0;
    }
    lists[out.position(index)].push_back(value);
  });
  for (std::size_t i = 0; i < lists.size(); ++i) out.values[i] = fold(lists[i]);
  if (keep_dims) return out;
  Index dropped;
  for (std::size_t d = 0; d < kept.size(); ++d) {
    if (!reduced[d]) dropped.push_back(kept[d]);
  }
  out.shape = dropped;
  return out;
}

// True if x has the array's shape and elements, each within atol + rtol |expected|.
inline bool is_close(const Tensor& x, const Array& expected, double rtol, double atol) {
  const Array got = array_of(x);
  if (got.shape != expected.shape) return false;
  for (std::size_t i = 0; i < got.values.size(); ++i) {
    const double a = got.values[i], b = expected.values[i];
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    if (!(std::abs(a - b) <= atol + rtol * std::abs(b))) return false;
  }
  return true;
}
inline bool is_equal(const Tensor& x, const Array& expected) { return is_close(x, expected, 0, 0); }

}  // namespace tessera::testing::naive
