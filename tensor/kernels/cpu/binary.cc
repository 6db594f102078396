#include "tessera/tensor/kernels/binary.h"

#include "tessera/tensor/kernels/cpu/traversal.h"
#include "tessera/tensor/kernels/types.h"

namespace tessera {
namespace {

// The first three cases are one expression in vector form; the strided one gives the same bits,
// element by element.
template <class T, class R, class F>
void run(const T* a, const T* b, R* y, const std::array<std::int64_t, 3>& steps, std::int64_t count,
         F f) {
  if (steps[0] == 1 && steps[1] == 1 && steps[2] == 1) {
    for (std::int64_t i = 0; i < count; ++i) y[i] = f(a[i], b[i]);
  } else if (steps[0] == 1 && steps[1] == 0 && steps[2] == 1) {
    const T value = *b;
    for (std::int64_t i = 0; i < count; ++i) y[i] = f(a[i], value);
  } else if (steps[0] == 0 && steps[1] == 1 && steps[2] == 1) {
    const T value = *a;
    for (std::int64_t i = 0; i < count; ++i) y[i] = f(value, b[i]);
  } else {
    for (std::int64_t i = 0; i < count; ++i) y[i * steps[2]] = f(a[i * steps[0]], b[i * steps[1]]);
  }
}

template <class T, class R, class F>
void apply(const BinaryKernel::Args& args, F f) {
  const T* a = args.a.as<T>();
  const T* b = args.b.as<T>();
  R* y = args.y.as<R>();
  const auto t = cpu::make_traversal(args.y.shape, args.a.strides, args.b.strides, args.y.strides);
  cpu::parallel_walk(t, [=](const auto& offsets, const auto& steps, std::int64_t count) {
    run(a + offsets[0], b + offsets[1], y + offsets[2], steps, count, f);
  });
}

template <class F>
void apply_any(const BinaryKernel::Args& args, F f) {
  with_type(args.a.dtype, [&]<class T>() { apply<T, T>(args, f); });
}

template <class F>
void apply_floating(const BinaryKernel::Args& args, F f) {
  with_floating_type(args.a.dtype, [&]<class T>() { apply<T, T>(args, f); });
}

}  // namespace

void BinaryKernel::cpu(const Args& args, Workspace) {
  switch (args.op) {
    case BinaryOp::kAdd:
      return apply_any(args, functors::Add{});
    case BinaryOp::kSub:
      return apply_any(args, functors::Sub{});
    case BinaryOp::kMul:
      return apply_any(args, functors::Mul{});
    case BinaryOp::kDiv:
      return apply_floating(args, functors::Div{});
    case BinaryOp::kReluBackward:
      return apply_floating(args, functors::ReluBackward{});
    case BinaryOp::kGeluBackward:
      return apply_floating(args, functors::GeluBackward{});
    case BinaryOp::kEqual:
      return with_type(args.a.dtype,
                       [&]<class T>() { apply<T, std::uint8_t>(args, functors::Equal{}); });
  }
}

}  // namespace tessera
