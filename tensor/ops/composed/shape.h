#pragma once

/// The definitions of those functions of ops/shape.h that are made of others. For the .cc files
/// that instantiate them.

#include <algorithm>
#include <vector>

#include "tessera/tensor/ops/composed/operands.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/shape.h"

namespace tessera::composed {

/// Checks repeat_interleave with counts; returns the entry of `dim` that each entry of the result
/// repeats.
Tensor repeated_entries(const Tensor& x, const Tensor& counts, int dim,
                        const RepeatInterleaveOptions& options);

/// The transpose of pad by a mode that is not kConstant: adds up the entries of dy that show one
/// entry of the tensor that was padded, in their order.
Tensor pad_backward(const Tensor& dy, const std::vector<Padding>& padding, PadMode mode);

template <class V>
V roll(const V& x, std::int64_t shift) {
  ops::check_defined("roll", "the tensor", plain(x));
  return reshape(roll(reshape(x, {x.numel()}), shift, 0), x.shape());
}

template <class V>
V roll(const V& x, const std::vector<std::int64_t>& shifts, const DimList& dims) {
  ops::check_defined("roll", "the tensor", plain(x));
  if (dims.empty() && shifts.size() == 1) return roll(x, shifts.front());
  TESSERA_CHECK(static_cast<int>(shifts.size()) == dims.size() && !dims.empty(), "roll",
                "{} shifts for {} dims; give one for each", shifts.size(), dims.size());
  V out = x;
  for (std::size_t i = 0; i < shifts.size(); ++i) out = roll(out, shifts[i], dims.begin()[i]);
  return out;
}

template <class V>
V fliplr(const V& x) {
  ops::check_defined("fliplr", "the tensor", plain(x));
  TESSERA_CHECK(x.ndim() >= 2, "fliplr", "needs at least 2 dims, got shape {}; unsqueeze it",
                x.shape().str());
  return flip(x, {1});
}

template <class V>
V flipud(const V& x) {
  ops::check_defined("flipud", "the tensor", plain(x));
  TESSERA_CHECK(x.ndim() >= 1, "flipud", "needs at least 1 dim, got a 0-d tensor; unsqueeze it");
  return flip(x, {0});
}

template <class V>
V rot90(const V& x, std::int64_t times, int dim0, int dim1) {
  constexpr const char* kWhere = "rot90";
  ops::check_defined(kWhere, "the tensor", plain(x));
  const int from = normalize_dim(dim0, x.ndim(), kWhere),
            to = normalize_dim(dim1, x.ndim(), kWhere);
  TESSERA_CHECK(from != to, kWhere, "both dims are {}; name two different ones", from);
  switch ((times % 4 + 4) % 4) {
    case 1:
      return contiguous(transpose(flip(x, {to}), from, to));
    case 2:
      return flip(x, {from, to});
    case 3:
      return contiguous(transpose(flip(x, {from}), from, to));
    default:
      return clone(x);
  }
}

template <class V>
V repeat_interleave(const V& x, const Tensor& counts, int dim,
                    const RepeatInterleaveOptions& options) {
  const Tensor entries = repeated_entries(plain(x), counts, dim, options);
  return index_select(x, dim, entries);
}

template <class V>
V ravel(const V& x) {
  ops::check_defined("ravel", "the tensor", plain(x));
  return reshape(x, {x.numel()});
}

template <class V>
V reshape_as(const V& x, const V& other) {
  ops::check_defined("reshape_as", "the tensor", plain(x));
  ops::check_defined("reshape_as", "the other tensor", plain(other));
  ops::check_same_device("reshape_as", plain(x), plain(other));
  TESSERA_CHECK(x.numel() == other.numel(), "reshape_as",
                "shape {} has {} elements, and {} has {}; they must agree", x.shape().str(),
                x.numel(), other.shape().str(), other.numel());
  return reshape(x, other.shape());
}

}  // namespace tessera::composed
