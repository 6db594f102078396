#pragma once

/// A list of dims as an argument of operations: `sum(x, {0, -1})`, `sum(x, 1)`, or a vector.

#include <array>
#include <concepts>
#include <initializer_list>
#include <span>
#include <vector>

#include "tessera/tensor/shape.h"

namespace tessera {

/// At most kMaxDims dims, as given: negative dims count from the back. Each operation defines the
/// meaning of an empty list; reductions reduce all dims.
class DimList {
 public:
  DimList() = default;
  /// Both throw InvalidArgument above kMaxDims entries.
  DimList(std::initializer_list<int> dims) : DimList(std::span(dims.begin(), dims.size())) {}
  DimList(const std::vector<int>& dims) : DimList(std::span(dims)) {}
  /// One dim: `mean(x, 1)`. A template, so that a bool is not one.
  template <std::same_as<int> Int>
  DimList(Int dim) : DimList({dim}) {}  // NOLINT: implicit on purpose
  explicit DimList(std::span<const int> dims);

  const int* begin() const { return dims_.data(); }
  const int* end() const { return dims_.data() + count_; }
  int size() const { return count_; }
  bool empty() const { return count_ == 0; }

 private:
  std::array<int, kMaxDims> dims_{};
  int count_ = 0;
};

/// True at each listed dim.
using DimMask = std::array<bool, kMaxDims>;
/// Throws InvalidArgument tagged `where` for a dim outside [-ndim, ndim) or listed twice. A 0-d
/// tensor counts as one element along dim 0, as in PyTorch.
DimMask dim_mask(const DimList& dims, int ndim, const char* where);

}  // namespace tessera
