#include "tessera/tensor/kernels/layout.h"

#include <algorithm>
#include <array>
#include <functional>

namespace tessera {
namespace {

// A stable sort of few dims: `order` lists the dims of `leading` from the largest stride down.
std::array<int, kMaxDims> descending(const Shape& leading) {
  std::array<int, kMaxDims> order{};
  for (int d = 0; d < leading.ndim(); ++d) {
    int place = d;
    for (; place > 0; --place) {
      const int before = order[static_cast<std::size_t>(place - 1)];
      if (leading[before] >= leading[d]) break;
      order[static_cast<std::size_t>(place)] = before;
    }
    order[static_cast<std::size_t>(place)] = d;
  }
  return order;
}

void reorder(Shape& list, const std::array<int, kMaxDims>& order) {
  const Shape old = list;
  for (int d = 0; d < list.ndim(); ++d) list[d] = old[order[static_cast<std::size_t>(d)]];
}

}  // namespace

void merge_dims(Shape& shape, std::initializer_list<Shape*> strides) {
  const auto joins = [&](int outer, int inner) {
    return std::all_of(strides.begin(), strides.end(),
                       [&](const Shape* s) { return (*s)[outer] == (*s)[inner] * shape[inner]; });
  };
  int kept = 0;  // number of dims kept so far; later ones are not placed yet
  for (int d = 0; d < shape.ndim(); ++d) {
    if (shape[d] == 1) continue;
    if (kept > 0 && joins(kept - 1, d)) {
      shape[kept - 1] *= shape[d];
      for (Shape* s : strides) (*s)[kept - 1] = (*s)[d];
    } else {
      shape[kept] = shape[d];
      for (Shape* s : strides) (*s)[kept] = (*s)[d];
      ++kept;
    }
  }
  if (kept == shape.ndim()) return;
  const auto cut = [kept](const Shape& list) {
    return Shape(std::span(list.begin(), static_cast<std::size_t>(kept)));
  };
  shape = cut(shape);
  for (Shape* s : strides) *s = cut(*s);
}

void sort_and_merge_dims(Shape& shape, std::initializer_list<Shape*> strides) {
  const Shape& leading = **strides.begin();
  if (!std::is_sorted(leading.begin(), leading.end(), std::greater<>())) {
    const std::array<int, kMaxDims> order = descending(leading);
    reorder(shape, order);
    for (Shape* s : strides) reorder(*s, order);
  }
  merge_dims(shape, strides);
}

}  // namespace tessera
