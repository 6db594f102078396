#include "tessera/tensor/ops_optim.h"

#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/kernels/sgd.h"
#include "tessera/tensor/op_checks.h"

namespace tessera {
namespace {

constexpr const char* kWhere = "sgd_step";

void check_partner(const Tensor& parameter, const char* name, const Tensor& x) {
  ops::check_defined(kWhere, name, x);
  ops::check_same_dtype(kWhere, parameter, x);
  ops::check_same_device(kWhere, parameter, x);
  ops::check_same_shape(kWhere, parameter, x);
  TESSERA_CHECK(x.is_contiguous(), kWhere, "{} of shape {} has strides {}; it must be contiguous",
                name, x.shape().str(), x.strides().str());
}

void check_segment(const SgdSegment& segment, const Tensor& first) {
  check_partner(segment.parameter, "the parameter", segment.parameter);
  ops::check_floating(kWhere, segment.parameter);
  ops::check_same_dtype(kWhere, first, segment.parameter);
  ops::check_same_device(kWhere, first, segment.parameter);
  check_partner(segment.parameter, "the gradient", segment.gradient);
  if (segment.momentum.defined())
    check_partner(segment.parameter, "the momentum", segment.momentum);
  TESSERA_CHECK(segment.momentum.defined() || (segment.momentum_factor == 0 && !segment.nesterov),
                kWhere, "momentum_factor {} (nesterov: {}) needs a momentum buffer; pass one",
                segment.momentum_factor, segment.nesterov);
}

}  // namespace

void sgd_step(const std::vector<SgdSegment>& segments) {
  if (segments.empty()) return;
  for (const SgdSegment& segment : segments) {
    ops::check_defined(kWhere, "the parameter", segment.parameter);
    check_segment(segment, segments.front().parameter);
  }
  SgdKernel::Args args;
  args.segments.reserve(segments.size());
  for (const SgdSegment& s : segments) {
    args.segments.push_back({.parameter = write(s.parameter),
                             .gradient = read(s.gradient),
                             .momentum = s.momentum.defined() ? write(s.momentum) : View{},
                             .lr = s.lr,
                             .momentum_factor = s.momentum_factor,
                             .dampening = s.dampening,
                             .weight_decay = s.weight_decay,
                             .nesterov = s.nesterov,
                             .first_step = s.first_step});
  }
  launch<SgdKernel>(segments.front().parameter.device(), std::move(args));
}

}  // namespace tessera
