#include <cstddef>
#include <cstdint>

#include "tessera/tensor/kernels/cpu/matmul/eigen.h"
#include "tessera/tensor/kernels/cpu/matmul/matmul_tile.h"
#include "tessera/tensor/kernels/matmul.h"

namespace tessera::cpu {
namespace {

using Eigen::ColMajor;
using Eigen::Index;
using Eigen::RowMajor;

// Where Eigen packs its operands: in our workspace, in blocks of fixed size. Eigen's own block
// sizes depend on the caches of the CPU, so the bits would too.
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

}  // namespace

void multiply_by_eigen(const TileProduct& t, Workspace scratch) {
  prepare_output<double>(t);  // Eigen's products add to the output
  // By columns: c^T = b^T a^T. An operand with rows of unit stride is its transpose with columns of
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
