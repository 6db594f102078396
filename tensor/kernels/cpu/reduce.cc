#include "tessera/tensor/kernels/reduce.h"

#include "tessera/tensor/kernels/cpu/reduce_blocks.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

template <template <class> class Fold>
void reduce_any(const ReduceKernel::Args& a, Workspace scratch) {
  with_compute_type(a.x.dtype, [&]<class C>() { cpu::Reduction<Fold<C>, C>(a, scratch).run(); });
}

template <template <class> class Fold>
void reduce_floating(const ReduceKernel::Args& a, Workspace scratch) {
  if (a.x.dtype == DType::kF64) return cpu::Reduction<Fold<double>, double>(a, scratch).run();
  cpu::Reduction<Fold<float>, float>(a, scratch).run();
}

}  // namespace

void ReduceKernel::cpu(const Args& a, Workspace scratch) {
  switch (a.op) {
    case ReduceOp::kSum:
      return reduce_any<cpu::SumFold>(a, scratch);
    case ReduceOp::kMean:
      return reduce_floating<cpu::MeanFold>(a, scratch);
    case ReduceOp::kSumOfSquares:
      return reduce_floating<cpu::SquaresFold>(a, scratch);
    case ReduceOp::kNorm2:
      return reduce_floating<cpu::Norm2Fold>(a, scratch);
    case ReduceOp::kNormP:
      return reduce_floating<cpu::NormPFold>(a, scratch);
    case ReduceOp::kSumAbs:
      return reduce_floating<cpu::SumAbsFold>(a, scratch);
    case ReduceOp::kMax:
      return reduce_any<cpu::MaxFold>(a, scratch);
    case ReduceOp::kMin:
      return reduce_any<cpu::MinFold>(a, scratch);
    case ReduceOp::kMaxAbs:
      return reduce_floating<cpu::MaxAbsFold>(a, scratch);
    case ReduceOp::kMinAbs:
      return reduce_floating<cpu::MinAbsFold>(a, scratch);
    case ReduceOp::kProd:
      return reduce_any<cpu::ProdFold>(a, scratch);
    case ReduceOp::kCountNonzero:
      return reduce_any<cpu::CountFold>(a, scratch);
    case ReduceOp::kAny:
      return reduce_any<cpu::AnyFold>(a, scratch);
    case ReduceOp::kAll:
      return reduce_any<cpu::AllFold>(a, scratch);
    case ReduceOp::kLogSumExp:
      return reduce_floating<cpu::LogSumExpFold>(a, scratch);
    case ReduceOp::kVar:
      return reduce_floating<cpu::VarFold>(a, scratch);
    case ReduceOp::kStddev:
      return reduce_floating<cpu::StddevFold>(a, scratch);
  }
}

}  // namespace tessera
