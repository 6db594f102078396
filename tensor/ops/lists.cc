#include "tessera/tensor/ops/lists.h"

#include "tessera/tensor/kernels/axpby_list.h"
#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/internal/op_checks.h"
#include "tessera/tensor/ops/internal/overlap.h"

namespace tessera {
namespace {

bool fits(const Tensor& x) { return x.is_contiguous() && is_floating(x.dtype()); }

}  // namespace

void axpby_(const std::vector<AxpbySegment>& segments) {
  constexpr const char* kWhere = "axpby_";
  AxpbyListKernel::Args args;
  std::vector<Tensor> copies;  // kept until the launch has their addresses
  for (const AxpbySegment& segment : segments) {
    ops::check_defined(kWhere, "an output of the list", segment.out);
    ops::check_defined(kWhere, "a tensor of the list", segment.x);
    ops::check_same_device(kWhere, segments.front().out, segment.out);
    if (!fits(segment.out) || !fits(segment.x)) {
      axpby_(segment.out, segment.x, {.alpha = segment.alpha, .beta = segment.beta});
      continue;
    }
    ops::check_same_device(kWhere, segment.out, segment.x);
    ops::check_same_shape(kWhere, segment.out, segment.x);
    const Tensor& x = ops::apart(segment.x, segment.out, copies.emplace_back());
    args.segments.push_back({.x = read(x),
                             .y = overwrite(segment.out, kWhere),
                             .alpha = segment.alpha,
                             .beta = segment.beta});
  }
  if (!args.segments.empty()) launch<AxpbyListKernel>(segments.front().out.device(), args);
}

void mul_(const std::vector<Tensor>& tensors, const Tensor& factor) {
  constexpr const char* kWhere = "mul_";
  ops::check_defined(kWhere, "the factor", factor);
  TESSERA_CHECK(factor.numel() == 1, kWhere,
                "the factor of a list has shape {}; it must have one element",
                factor.shape().str());
  AxpbyListKernel::Args args;
  for (const Tensor& x : tensors) {
    ops::check_defined(kWhere, "a tensor of the list", x);
    ops::check_same_device(kWhere, factor, x);
    if (!fits(x) || !is_floating(factor.dtype())) {
      mul_(x, reshape(factor, {}));
      continue;
    }
    args.segments.push_back({.x = read(x), .y = overwrite(x, kWhere)});
  }
  if (args.segments.empty()) return;
  args.factor = read(factor);
  launch<AxpbyListKernel>(factor.device(), args);
}

}  // namespace tessera
