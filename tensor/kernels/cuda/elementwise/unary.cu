#include "tessera/tensor/kernels/elementwise.h"

#include "tessera/tensor/kernels/cuda/elementwise/map.h"
#include "tessera/tensor/kernels/cuda/elementwise/map_functors.h"
#include "tessera/tensor/kernels/cuda/elementwise/packed.h"
#include "tessera/tensor/kernels/cuda/elementwise/packed_exact.h"
#include "tessera/tensor/kernels/cuda/elementwise/packed_math.h"

namespace tessera {
namespace {

template <class C>
__global__ void __launch_bounds__(cuda::kThreads, cuda::kBlocksEach<C>)
    unary_kernel(const __grid_constant__ cuda::MapWork<C, 1> work, UnaryOp op) {
  cuda::for_tiles(work.runs, [&](const cuda::Part& part) {
    C in[1][cuda::kGroup<C>];
    cuda::load_inputs(work, part, in);
    cuda::apply_op<functors::Unary>(op, in);
    cuda::store_result(work, part, in[0]);
  });
}

// The functions below return false for launches that the general kernel takes.

// Calls with(functor) for results of 16 bits.
template <class With>
bool of_16_bits(UnaryOp op, const With& with) {
  switch (op) {
    case UnaryOp::kNeg:
      return with(functors::Neg{});
    case UnaryOp::kAbs:
      return with(functors::Abs{});
    case UnaryOp::kSign:
      return with(functors::Sign{});
    case UnaryOp::kSquare:
      return with(functors::Square{});
    case UnaryOp::kReciprocal:
      return with(functors::Reciprocal{});
    case UnaryOp::kSqrt:
      return with(functors::Sqrt{});
    case UnaryOp::kRelu:
      return with(functors::Relu{});
    case UnaryOp::kFloor:
      return with(functors::Floor{});
    case UnaryOp::kCeil:
      return with(functors::Ceil{});
    case UnaryOp::kRound:
      return with(functors::Round{});
    case UnaryOp::kTrunc:
      return with(functors::Trunc{});
    case UnaryOp::kExp:
      return with(functors::Exp{});
    case UnaryOp::kExpm1:
      return with(functors::Expm1{});
    default:
      return false;
  }
}

// The same by shorter formulas.
template <class With>
bool rounded_to_16_bits(UnaryOp op, const With& with) {
  switch (op) {
    case UnaryOp::kRsqrt:
      return with(cuda::FastRsqrt{});
    case UnaryOp::kLog:
      return with(cuda::FastLog{});
    case UnaryOp::kLog1p:
      return with(cuda::FastLog1p{});
    case UnaryOp::kSin:
      return with(cuda::FastSine<0>{});
    case UnaryOp::kCos:
      return with(cuda::FastSine<1>{});
    case UnaryOp::kTanh:
      return with(cuda::FastTanh{});
    case UnaryOp::kSigmoid:
      return with(cuda::FastSigmoid{});
    case UnaryOp::kErf:
      return with(cuda::FastErf{});
    case UnaryOp::kSoftplus:
      return with(cuda::FastSoftplus{});
    case UnaryOp::kGelu:
      return with(cuda::FastGelu{});
    case UnaryOp::kGeluTanh:
      return with(functors::GeluTanhBy<cuda::FastSigmoid>{});
    case UnaryOp::kSilu:
      return with(functors::SiluBy<cuda::FastSigmoid>{});
    default:
      return false;
  }
}

// For f32: functions that take the general kernel longer than the memory.
template <class With>
bool of_f32(UnaryOp op, const With& with) {
  switch (op) {
    case UnaryOp::kLog1p:
      return with(functors::Log1p{});
    case UnaryOp::kSin:
      return with(cuda::EasySin{});
    case UnaryOp::kCos:
      return with(cuda::EasyCos{});
    case UnaryOp::kErf:
      return with(functors::Erf{});
    case UnaryOp::kSoftplus:
      return with(functors::Softplus{});
    default:
      return false;
  }
}

template <class With>
bool predicate(UnaryOp op, const With& with) {
  switch (op) {
    case UnaryOp::kIsNan:
      return with(cuda::Classify{.zero = 0, .finite = 0, .infinite = 0, .nan = 1});
    case UnaryOp::kIsInf:
      return with(cuda::Classify{.zero = 0, .finite = 0, .infinite = 1, .nan = 0});
    case UnaryOp::kIsFinite:
      return with(cuda::Classify{.zero = 1, .finite = 1, .infinite = 0, .nan = 0});
    case UnaryOp::kLogicalNot:
      return with(cuda::Classify{.zero = 1, .finite = 0, .infinite = 0, .nan = 0});
    default:
      return false;
  }
}

bool try_packed(CudaStream stream, const UnaryKernel::Args& a) {
  if (a.compute != DType::kF32 || !cuda::is_packed(a.y, a.x)) return false;
  constexpr const char* kName = UnaryKernel::kName;
  if (a.y.dtype == DType::kBool) {
    return predicate(a.op, [&](const auto& functor) {
      return cuda::with_16_bits(a.x.dtype, [&]<class T>() {
        cuda::start_packed<bool, T>(kName, stream, functor, a.y, a.x);
      });
    });
  }
  if (a.x.dtype != a.y.dtype) return false;
  if (a.y.dtype == DType::kF32) {
    return of_f32(a.op, [&](const auto& functor) {
      cuda::start_packed<float, float>(kName, stream, functor, a.y, a.x);
      return true;
    });
  }
  const auto with = [&](const auto& functor) {
    return cuda::with_16_bits(
        a.y.dtype, [&]<class T>() { cuda::start_packed<T, T>(kName, stream, functor, a.y, a.x); });
  };
  return of_16_bits(a.op, with) || rounded_to_16_bits(a.op, with);
}

}  // namespace

void UnaryKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  if (a.y.numel() == 0 || try_packed(stream, a)) return;
  with_compute_type(a.compute, [&]<class C>() {
    const auto work = cuda::map_work<C, 1>(a.y, {Operand(a.x)});
    cuda::start(kName, unary_kernel<C>, cuda::grid_of(work.runs), stream, work, a.op);
  });
}

}  // namespace tessera
