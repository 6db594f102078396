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
    binary_kernel(const __grid_constant__ cuda::MapWork<C, 2> work, BinaryOp op) {
  cuda::for_tiles(work.runs, [&](const cuda::Part& part) {
    C in[2][cuda::kGroup<C>];
    cuda::load_inputs(work, part, in);
    cuda::apply_op<functors::Binary>(op, in);
    cuda::store_result(work, part, in[0]);
  });
}

// The functions below return false for launches that the general kernel takes.

// Calls with(functor) for results of 16 bits.
template <class With>
bool of_16_bits(BinaryOp op, const With& with) {
  switch (op) {
    case BinaryOp::kAdd:
      return with(functors::Add{});
    case BinaryOp::kSub:
      return with(functors::Sub{});
    case BinaryOp::kMul:
      return with(functors::Mul{});
    case BinaryOp::kDiv:
      return with(functors::Div{});
    case BinaryOp::kMaximum:
      return with(functors::Maximum{});
    case BinaryOp::kMinimum:
      return with(functors::Minimum{});
    case BinaryOp::kPow:
      return with(cuda::FastPow{});
    case BinaryOp::kReluBackward:
      return with(functors::ReluBackward{});
    case BinaryOp::kGeluBackward:
      return with(cuda::FastGeluBackward{});
    case BinaryOp::kGeluTanhBackward:
      return with(functors::GeluTanhBackwardBy<cuda::FastSigmoid>{});
    case BinaryOp::kSiluBackward:
      return with(functors::SiluBackwardBy<cuda::FastSigmoid>{});
    case BinaryOp::kSoftplusBackward:
      return with(cuda::FastSoftplusBackward{});
    case BinaryOp::kTanhBackward:
      return with(functors::TanhBackward{});
    case BinaryOp::kSigmoidBackward:
      return with(functors::SigmoidBackward{});
    default:
      return false;
  }
}

// For f32 too.
template <class With>
bool division(BinaryOp op, const With& with) {
  switch (op) {
    case BinaryOp::kFloorDivide:
      return with(cuda::EasyFloorDivide{});
    case BinaryOp::kRemainder:
      return with(cuda::EasyRemainder{});
    default:
      return false;
  }
}

template <class With>
bool comparison(BinaryOp op, const With& with) {
  switch (op) {
    case BinaryOp::kEq:
      return with(cuda::Compare{.less = 0, .equal = 1, .greater = 0, .unordered = 0});
    case BinaryOp::kNe:
      return with(cuda::Compare{.less = 1, .equal = 0, .greater = 1, .unordered = 1});
    case BinaryOp::kLt:
      return with(cuda::Compare{.less = 1, .equal = 0, .greater = 0, .unordered = 0});
    case BinaryOp::kLe:
      return with(cuda::Compare{.less = 1, .equal = 1, .greater = 0, .unordered = 0});
    case BinaryOp::kGt:
      return with(cuda::Compare{.less = 0, .equal = 0, .greater = 1, .unordered = 0});
    case BinaryOp::kGe:
      return with(cuda::Compare{.less = 0, .equal = 1, .greater = 1, .unordered = 0});
    default:
      return false;
  }
}

template <class With>
bool logic(BinaryOp op, const With& with) {
  switch (op) {
    case BinaryOp::kLogicalAnd:
      return with(cuda::Logic{.neither = 0, .first = 0, .second = 0, .both = 1});
    case BinaryOp::kLogicalOr:
      return with(cuda::Logic{.neither = 0, .first = 1, .second = 1, .both = 1});
    case BinaryOp::kLogicalXor:
      return with(cuda::Logic{.neither = 0, .first = 1, .second = 1, .both = 0});
    default:
      return false;
  }
}

// Of a tensor and a number.
bool try_packed_number(CudaStream stream, const BinaryKernel::Args& args) {
  const ConstView& a = args.a.view;
  if (args.compute != DType::kF32 || !cuda::is_packed(args.y, a)) return false;
  constexpr const char* kName = BinaryKernel::kName;
  const auto b = static_cast<float>(args.b.number);
  if (args.y.dtype == DType::kBool) {
    return comparison(args.op, [&]<class F>(const F& functor) {
      return cuda::with_16_bits(a.dtype, [&]<class T>() {
        cuda::start_packed<bool, T>(kName, stream, cuda::WithNumber<F>{functor, b}, args.y, a);
      });
    });
  }
  if (a.dtype != args.y.dtype) return false;
  if (args.op == BinaryOp::kPow) {
    const auto halves = [&](const auto& functor) {
      return cuda::with_16_bits(
          a.dtype, [&]<class T>() { cuda::start_packed<T, T>(kName, stream, functor, args.y, a); });
    };
    if (b == 3 && a.dtype == DType::kF32) {
      cuda::start_packed<float, float>(kName, stream, cuda::WideCube{}, args.y, a);
      return true;
    }
    if (b == 3) return halves(cuda::Cube{});
    return b != 0 && b - b == 0 && halves(cuda::FastPowNumber(b));
  }
  return division(args.op, [&]<class F>(const F& functor) {
    return cuda::with_packed_type(a.dtype, [&]<class T>() {
      cuda::start_packed<T, T>(kName, stream, cuda::WithNumber<F>{functor, b}, args.y, a);
    });
  });
}

// Of two tensors.
bool try_packed(CudaStream stream, const BinaryKernel::Args& args) {
  const ConstView &a = args.a.view, &b = args.b.view;
  if (a.dtype != b.dtype || !cuda::is_packed(args.y, a, b)) return false;
  const auto start = [&]<class Y, class T>(const auto& functor) {
    cuda::start_packed<Y, T, T>(BinaryKernel::kName, stream, functor, args.y, a, b);
  };
  if (a.dtype == DType::kBool && args.y.dtype == DType::kBool) {
    return logic(args.op, [&](const auto& functor) {
      start.template operator()<bool, bool>(functor);
      return true;
    });
  }
  if (args.compute != DType::kF32) return false;
  if (args.y.dtype == DType::kBool) {
    const auto with = [&](const auto& functor) {
      return cuda::with_16_bits(a.dtype,
                                [&]<class T>() { start.template operator()<bool, T>(functor); });
    };
    return comparison(args.op, with) || logic(args.op, with);
  }
  if (a.dtype != args.y.dtype) return false;
  const bool divided = division(args.op, [&](const auto& functor) {
    return cuda::with_packed_type(a.dtype,
                                  [&]<class T>() { start.template operator()<T, T>(functor); });
  });
  return divided || of_16_bits(args.op, [&](const auto& functor) {
           return cuda::with_16_bits(a.dtype,
                                     [&]<class T>() { start.template operator()<T, T>(functor); });
         });
}

bool start_if_packed(CudaStream stream, const BinaryKernel::Args& args) {
  if (args.a.is_number()) return false;
  return args.b.is_number() ? try_packed_number(stream, args) : try_packed(stream, args);
}

}  // namespace

void BinaryKernel::cuda(CudaStream stream, const Args& a, Workspace) {
  if (a.y.numel() == 0 || start_if_packed(stream, a)) return;
  with_compute_type(a.compute, [&]<class C>() {
    const auto work = cuda::map_work<C, 2>(a.y, {a.a, a.b});
    cuda::start(kName, binary_kernel<C>, cuda::grid_of(work.runs), stream, work, a.op);
  });
}

}  // namespace tessera
