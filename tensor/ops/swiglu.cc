#include "tessera/tensor/kernels/swiglu.h"

#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops/activations.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/internal/op_checks.h"

namespace tessera {
namespace {

void check_like(const char* where, const Tensor& gate, const Tensor& x) {
  ops::check_operands(where, gate, x);
  ops::check_same_shape(where, gate, x);
  ops::check_same_dtype(where, gate, x);
}

}  // namespace

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  constexpr const char* kWhere = "swiglu";
  check_like(kWhere, gate, up);
  ops::check_floating(kWhere, gate);
  const Tensor y = Tensor::empty(gate.shape(), gate.options());
  const Tensor g = contiguous(gate), u = contiguous(up);
  launch<SwigluKernel>(gate.device(), {.gate = read(g), .up = read(u), .y = write(y)});
  return y;
}

SwigluGradients swiglu_backward(const Tensor& dy, const Tensor& gate, const Tensor& up,
                                const SwigluBackwardOptions& options) {
  constexpr const char* kWhere = "swiglu_backward";
  check_like(kWhere, gate, up);
  check_like(kWhere, gate, dy);
  ops::check_floating(kWhere, gate);
  const auto made = [&](bool wanted) {
    return wanted ? Tensor::empty(gate.shape(), gate.options()) : Tensor();
  };
  const SwigluGradients out{.gate = made(options.needs_gate), .up = made(options.needs_up)};
  if (!options.needs_gate && !options.needs_up) return out;
  const Tensor slope = contiguous(dy), g = contiguous(gate), u = contiguous(up);
  launch<SwigluBackwardKernel>(gate.device(),
                               {.dy = read(slope),
                                .gate = read(g),
                                .up = read(u),
                                .dgate = options.needs_gate ? write(out.gate) : View{},
                                .dup = options.needs_up ? write(out.up) : View{}});
  return out;
}

}  // namespace tessera
