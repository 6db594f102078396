#pragma once

/// The definitions of ops/products.h. For the .cc files that instantiate them.

#include <algorithm>
#include <limits>
#include <vector>

#include "tessera/tensor/ops/composed/operands.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/mask.h"
#include "tessera/tensor/ops/products.h"
#include "tessera/tensor/ops/reduce.h"
#include "tessera/tensor/ops/shape.h"

namespace tessera::composed {

// Checks two factors with these numbers of dims, and what is added to their product of `shape`.
inline void check_ndims(const char* where, const Tensor& a, const Tensor& b, int a_dims,
                        int b_dims) {
  ops::check_operands(where, a, b);
  ops::check_floating(where, a);
  TESSERA_CHECK(a.ndim() == a_dims && b.ndim() == b_dims, where,
                "needs factors of {} and {} dims, got {} and {}", a_dims, b_dims, a.shape().str(),
                b.shape().str());
}

inline void check_inner(const char* where, const Tensor& a, const Tensor& b, bool do_multiply) {
  TESSERA_CHECK(do_multiply, where, "{} and {} do not multiply; their inner dims must be equal",
                a.shape().str(), b.shape().str());
}

template <class V>
V addbmm(const V& c, const V& a, const V& b, const AddmmOptions& options) {
  constexpr const char* kWhere = "addbmm";
  check_ndims(kWhere, plain(a), plain(b), 3, 3);
  check_inner(kWhere, plain(a), plain(b), a.dim(0) == b.dim(0) && a.dim(2) == b.dim(1));
  const std::int64_t k = a.dim(0) * a.dim(2);
  ops::check_added(kWhere, plain(c), plain(a), {a.dim(1), b.dim(2)});
  // The sum over the batch is part of the sum over k.
  return addmm(c, reshape(a.transpose(0, 1), {a.dim(1), k}), reshape(b, {k, b.dim(2)}), options);
}

template <class V>
V addmv(const V& c, const V& a, const V& x, const AddmmOptions& options) {
  constexpr const char* kWhere = "addmv";
  check_ndims(kWhere, plain(a), plain(x), 2, 1);
  check_inner(kWhere, plain(a), plain(x), a.dim(1) == x.dim(0));
  ops::check_added(kWhere, plain(c), plain(a), {a.dim(0)});
  const V column = c.ndim() == 0 ? c : c.unsqueeze(1);
  return addmm(column, a, x.unsqueeze(1), options).squeeze(1);
}

template <class V>
V addr(const V& c, const V& a, const V& b, const AddmmOptions& options) {
  constexpr const char* kWhere = "addr";
  check_ndims(kWhere, plain(a), plain(b), 1, 1);
  ops::check_added(kWhere, plain(c), plain(a), {a.dim(0), b.dim(0)});
  return addmm(c, a.unsqueeze(1), b.unsqueeze(0), options);
}

template <class V>
V vdot(const V& a, const V& b) {
  constexpr const char* kWhere = "vdot";
  check_ndims(kWhere, plain(a), plain(b), 1, 1);
  check_inner(kWhere, plain(a), plain(b), a.dim(0) == b.dim(0));
  return dot(a, b);
}

template <class V>
V kron(const V& a, const V& b) {
  constexpr const char* kWhere = "kron";
  ops::check_defined(kWhere, "the first operand", plain(a));
  ops::check_defined(kWhere, "the second operand", plain(b));
  ops::check_same_device(kWhere, plain(a), plain(b));
  const int n = std::max(a.ndim(), b.ndim());
  TESSERA_CHECK(2 * n <= kMaxDims, kWhere, "operands of shapes {} and {} have more than {} dims",
                a.shape().str(), b.shape().str(), kMaxDims / 2);
  // a [m, 1, n, 1] times b [1, p, 1, q].
  Shape left, right, out;
  for (int d = 0; d < n; ++d) {
    const int i = d - (n - a.ndim()), j = d - (n - b.ndim());
    const std::int64_t of_a = i < 0 ? 1 : a.shape()[i], of_b = j < 0 ? 1 : b.shape()[j];
    left.push_back(of_a), left.push_back(1);
    right.push_back(1), right.push_back(of_b);
    out.push_back(of_a * of_b);
  }
  return reshape(mul(reshape(a, left), reshape(b, right)), out);
}

template <class V>
V cross(const V& a, const V& b, int dim) {
  constexpr const char* kWhere = "cross";
  ops::check_defined(kWhere, "the first operand", plain(a));
  ops::check_defined(kWhere, "the second operand", plain(b));
  ops::check_same_device(kWhere, plain(a), plain(b));
  const DType dtype = promote(a.dtype(), b.dtype()), wide = compute_dtype(dtype);
  TESSERA_CHECK(dtype != DType::kBool, kWhere, "operands are bool; cast one of them");
  TESSERA_CHECK(a.ndim() == b.ndim(), kWhere,
                "{} and {} have different numbers of dims; unsqueeze one", a.shape().str(),
                b.shape().str());
  const int d = normalize_dim(dim, a.ndim(), kWhere);
  TESSERA_CHECK(a.shape()[d] == 3 && b.shape()[d] == 3, kWhere,
                "dim {} of {} and {} must have extent 3", d, a.shape().str(), b.shape().str());
  broadcast_shapes(a.shape(), b.shape(), kWhere);
  const V x = in_dtype(a, wide), y = in_dtype(b, wide);
  // The elements after this one, and those before it, around the end.
  const V first = mul(roll(x, -1, d), roll(y, 1, d)), second = mul(roll(x, 1, d), roll(y, -1, d));
  return in_dtype(sub(first, second), dtype);
}

template <class V>
V matrix_power(const V& x, std::int64_t power) {
  constexpr const char* kWhere = "matrix_power";
  const Tensor& elements = floating(kWhere, x);
  TESSERA_CHECK(elements.ndim() >= 2 && elements.dim(-1) == elements.dim(-2), kWhere,
                "needs square matrices [..., n, n], got {}", elements.shape().str());
  TESSERA_CHECK(power >= 0, kWhere, "the power is {}; it must be at least 0", power);
  if (power == 0) {
    const Tensor all = ones(elements.shape(), {.dtype = DType::kBool, .device = x.device()});
    return add(masked_fill(x, all, 0), V(eye(elements.dim(-1), -1, elements.options())));
  }
  V square = x, result;
  for (std::int64_t rest = power; rest > 0; rest /= 2) {
    if (rest % 2 == 1) result = result.defined() ? matmul(result, square) : square;
    if (rest > 1) square = matmul(square, square);
  }
  return power == 1 ? clone(result) : result;
}

/// Where to cut the product of matrices i ... j, for the fewest multiplications (Cormen et al., "Introduction to
/// Algorithms", 15.2). `extents`: the rows of each matrix, and the columns of the last. Defined in ops/products.cc.
std::vector<std::vector<std::size_t>> cheapest_cuts(const std::vector<double>& extents);

template <class V>
V product_of_chain(const std::vector<V>& matrices,
                   const std::vector<std::vector<std::size_t>>& cuts, std::size_t first,
                   std::size_t last) {
  if (first == last) return matrices[first];
  const std::size_t cut = cuts[first][last];
  return matmul(product_of_chain(matrices, cuts, first, cut),
                product_of_chain(matrices, cuts, cut + 1, last));
}

template <class V>
V multi_dot(const std::vector<V>& matrices) {
  constexpr const char* kWhere = "multi_dot";
  TESSERA_CHECK(matrices.size() >= 2, kWhere, "got {} matrices; pass at least two",
                matrices.size());
  const std::size_t last = matrices.size() - 1;
  std::vector<V> chain;
  std::vector<double> extents;
  for (std::size_t i = 0; i <= last; ++i) {
    const Tensor& x = floating(kWhere, matrices[i]);
    ops::check_operands(kWhere, plain(matrices.front()), x);
    const bool is_vector = x.ndim() == 1 && (i == 0 || i == last);
    TESSERA_CHECK(x.ndim() == 2 || is_vector, kWhere,
                  "matrix {} has shape {}; all need 2 dims, the first and the last may have 1", i,
                  x.shape().str());
    chain.push_back(!is_vector ? matrices[i] : matrices[i].unsqueeze(i == 0 ? 0 : 1));
    TESSERA_CHECK(
        i == 0 || chain[i - 1].dim(1) == chain[i].dim(0), kWhere,
        "matrices {} and {} of shapes {} and {} do not multiply; their inner dims must be "
        "equal",
        i - 1, i, matrices[i - 1].shape().str(), x.shape().str());
    extents.push_back(static_cast<double>(chain[i].dim(0)));
  }
  extents.push_back(static_cast<double>(chain[last].dim(1)));
  V out = product_of_chain(chain, cheapest_cuts(extents), 0, last);
  if (matrices[last].ndim() == 1) out = out.squeeze(1);
  return matrices[0].ndim() == 1 ? out.squeeze(0) : out;
}

template <class V>
V cov(const V& x, double correction) {
  constexpr const char* kWhere = "cov";
  const Tensor& elements = floating(kWhere, x);
  TESSERA_CHECK(elements.ndim() <= 2, kWhere, "needs [variables, observations], got {}",
                elements.shape().str());
  const bool is_one = elements.ndim() < 2;
  const std::int64_t count = is_one ? elements.numel() : elements.dim(1);
  const double divisor = std::max(0.0, static_cast<double>(count) - correction);
  return rounded_once(x, [&](const V& v) {
    const V rows = is_one ? reshape(v, {1, count}) : v;
    const V deviations = sub(rows, mean(rows, {1}, true));
    const V all = div(matmul(deviations, deviations.transpose(0, 1)), divisor);
    return is_one ? reshape(all, {}) : all;
  });
}

template <class V>
V corrcoef(const V& x) {
  constexpr const char* kWhere = "corrcoef";
  const Tensor& elements = floating(kWhere, x);
  TESSERA_CHECK(elements.ndim() <= 2, kWhere, "needs [variables, observations], got {}",
                elements.shape().str());
  return rounded_once(x, [&](const V& v) {
    const V c = cov(v, 1);
    if (c.ndim() == 0) return div(c, c);
    const std::int64_t n = c.dim(0);
    const V deviations = sqrt(reshape(c, {n * n}).slice(0, 0, n * n, n + 1));
    const V scaled = div(div(c, deviations.unsqueeze(1)), deviations.unsqueeze(0));
    return clamp(scaled, -1, 1);
  });
}

}  // namespace tessera::composed
