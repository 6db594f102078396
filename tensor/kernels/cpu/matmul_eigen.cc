#include <cstddef>
#include <cstdint>

#include "tessera/tensor/kernels/cpu/eigen.h"
#include "tessera/tensor/kernels/cpu/matmul_tile.h"
#include "tessera/tensor/kernels/matmul.h"
#include "tessera/tensor/kernels/scalar_math.h"

namespace tessera::cpu {
namespace {

using Eigen::ColMajor;
using Eigen::Index;
using Eigen::RowMajor;

// Where Eigen packs its operands: in our workspace, in blocks of fixed size. Its own choice follows
// the caches of the CPU, which would make the bits depend on them.
class Blocking : public Eigen::internal::level3_blocking<double, double> {
 public:
  Blocking(Index m, Index n, Workspace scratch) {
    m_mc = m;
    m_nc = n;
    m_kc = MatmulKernel::kEigenDepth;
    const auto address = reinterpret_cast<std::uintptr_t>(scratch.data);
    m_blockA = reinterpret_cast<double*>((address + 63) / 64 * 64);
    m_blockB = m_blockA + m * m_kc;
  }
};

template <int lhs_order, int rhs_order>
void run(Index m, Index n, Index k, const double* lhs, Index lhs_stride, const double* rhs,
         Index rhs_stride, double* out, Index out_stride, double alpha, Blocking& blocking) {
  Eigen::internal::general_matrix_matrix_product<Index, double, lhs_order, false, double, rhs_order,
                                                 false, ColMajor, 1>::run(m, n, k, lhs, lhs_stride,
                                                                          rhs, rhs_stride, out, 1,
                                                                          out_stride, alpha,
                                                                          blocking, nullptr);
}

// Eigen's products add to the output.
void prepare_output(const TileProduct& t) {
  if (t.bias == nullptr && t.beta == 1) return;
  const auto* bias = static_cast<const double*>(t.bias);
  for (std::int64_t i = 0; i < t.m; ++i) {
    double* row = static_cast<double*>(t.c.data) + i * t.c.row_stride;
    for (std::int64_t j = 0; j < t.n; ++j) {
      if (bias != nullptr) {
        row[j] = bias[j];
      } else {
        row[j] = t.beta == 0 ? 0 : t.beta * row[j];
      }
    }
  }
}

// y += x b for one row, which packing would only delay. Where rows of b lie in memory, in the order
// of k; else in kLanes sums that are added in pairs. UnitStride: of x.
template <bool UnitStride>
void add_row_by_rows(const TileProduct& t, const double* x, std::int64_t x_stride, double* y) {
  const auto* b = static_cast<const double*>(t.b.data);
  const auto factor = [&](std::int64_t p) { return t.alpha * x[UnitStride ? p : p * x_stride]; };
  std::int64_t p = 0;
  for (; p + 4 <= t.k; p += 4) {
    const double *b0 = b + p * t.b.row_stride, *b1 = b0 + t.b.row_stride, *b2 = b1 + t.b.row_stride,
                 *b3 = b2 + t.b.row_stride;
    const double x0 = factor(p), x1 = factor(p + 1), x2 = factor(p + 2), x3 = factor(p + 3);
#pragma GCC ivdep
    for (std::int64_t j = 0; j < t.n; ++j) {
      const double sum = scalar::fma(x1, b1[j], scalar::fma(x0, b0[j], y[j]));
      y[j] = scalar::fma(x3, b3[j], scalar::fma(x2, b2[j], sum));
    }
  }
  for (; p < t.k; ++p) {
    const double* row = b + p * t.b.row_stride;
    const double x0 = factor(p);
#pragma GCC ivdep
    for (std::int64_t j = 0; j < t.n; ++j) y[j] = scalar::fma(x0, row[j], y[j]);
  }
}

template <bool UnitStride>
void add_row_by_columns(const TileProduct& t, const double* x, std::int64_t x_stride, double* y) {
  constexpr std::int64_t kLanes = 32;
  for (std::int64_t j = 0; j < t.n; ++j) {
    const double* column = static_cast<const double*>(t.b.data) + j * t.b.column_stride;
    double lanes[kLanes] = {};
    std::int64_t p = 0;
    for (; p + kLanes <= t.k; p += kLanes) {
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        const double factor = x[UnitStride ? p + lane : (p + lane) * x_stride];
        lanes[lane] = scalar::fma(factor, column[p + lane], lanes[lane]);
      }
    }
    for (std::int64_t lane = 0; p < t.k; ++p, ++lane)
      lanes[lane] = scalar::fma(x[UnitStride ? p : p * x_stride], column[p], lanes[lane]);
    for (std::int64_t half = kLanes / 2; half > 0; half /= 2)
      for (std::int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    y[j] += t.alpha * lanes[0];
  }
}

void add_row(const TileProduct& t) {
  const auto* x = static_cast<const double*>(t.a.data);
  auto* y = static_cast<double*>(t.c.data);
  const std::int64_t stride = t.a.column_stride;
  const auto add = t.b.column_stride == 1
                       ? (stride == 1 ? add_row_by_rows<true> : add_row_by_rows<false>)
                       : (stride == 1 ? add_row_by_columns<true> : add_row_by_columns<false>);
  add(t, x, stride, y);
}

}  // namespace

void multiply_by_eigen(const TileProduct& t, Workspace scratch) {
  prepare_output(t);
  if (t.m == 1) return add_row(t);
  // In columns: c^T = b^T a^T. An operand with rows of unit stride is its transpose with columns of
  // unit stride.
  Blocking blocking(t.n, t.m, scratch);
  const bool b_rows = t.b.column_stride == 1, a_rows = t.a.column_stride == 1;
  const Index lhs_stride = b_rows ? t.b.row_stride : t.b.column_stride;
  const Index rhs_stride = a_rows ? t.a.row_stride : t.a.column_stride;
  const auto product = b_rows ? (a_rows ? run<ColMajor, ColMajor> : run<ColMajor, RowMajor>)
                              : (a_rows ? run<RowMajor, ColMajor> : run<RowMajor, RowMajor>);
  product(t.n, t.m, t.k, static_cast<const double*>(t.b.data), lhs_stride,
          static_cast<const double*>(t.a.data), rhs_stride, static_cast<double*>(t.c.data),
          t.c.row_stride, t.alpha, blocking);
}

}  // namespace tessera::cpu
