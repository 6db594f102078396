// Whether the tensors of one operation suit each other: rules of the backend's documentation.

#include <fmt/core.h>

#include "tessera/tests/support/emulated_gpu/cudnn/cudnn_graph.h"

namespace tessera::emulated::cudnn {
namespace {

using enum Role;

Refused mismatch(std::string why) { return {CUDNN_STATUS_BAD_PARAM, std::move(why)}; }
Refused unsupported(std::string why) { return {CUDNN_STATUS_NOT_SUPPORTED, std::move(why)}; }

std::string text(const Tensor& t) {
  std::string all = fmt::format("tensor {} [", t.id);
  for (const std::int64_t dim : t.dims) all += fmt::format(" {}", dim);
  return all + " ]";
}

using Tensors = std::map<Role, Tensor>;

Refused check_matmul(const Tensors& t) {
  const Tensor &a = t.at(kX), &b = t.at(kB), &c = t.at(kY);
  const std::size_t rank = c.dims.size();
  if (rank < 2 || a.dims.size() != rank || b.dims.size() != rank) {
    return mismatch(fmt::format("matmul of {} and {} into {}", text(a), text(b), text(c)));
  }
  bool fits = a.dims[rank - 1] == b.dims[rank - 2] && a.dims[rank - 2] == c.dims[rank - 2] &&
              b.dims[rank - 1] == c.dims[rank - 1];
  for (std::size_t i = 0; i + 2 < rank; ++i) {
    fits = fits && c.dims[i] % a.dims[i] == 0 && c.dims[i] % b.dims[i] == 0 &&
           (a.dims[i] == c.dims[i] || b.dims[i] == c.dims[i]);
  }
  if (fits) return {};
  return mismatch(fmt::format("matmul of {} and {} into {}", text(a), text(b), text(c)));
}

int inputs_of(cudnnPointwiseMode_t mode) {
  switch (mode) {
    case CUDNN_POINTWISE_EXP:
    case CUDNN_POINTWISE_LOG:
    case CUDNN_POINTWISE_IDENTITY:
    case CUDNN_POINTWISE_GEN_INDEX:
      return 1;
    case CUDNN_POINTWISE_ADD:
    case CUDNN_POINTWISE_SUB:
    case CUDNN_POINTWISE_MUL:
    case CUDNN_POINTWISE_DIV:
    case CUDNN_POINTWISE_CMP_GE:
      return 2;
    case CUDNN_POINTWISE_BINARY_SELECT:
      return 3;
    default:
      return 0;
  }
}

Refused check_pointwise(const Descriptor& o, const Tensors& t) {
  const auto mode = o.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
                        ->one(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_ADD);
  const int inputs = inputs_of(mode);
  if (inputs == 0) return unsupported(fmt::format("pointwise mode {}", static_cast<int>(mode)));
  if (t.contains(kB) != (inputs >= 2) || t.contains(kT) != (inputs == 3)) {
    return mismatch(fmt::format("pointwise mode {} has {} inputs, {} were given",
                                static_cast<int>(mode), inputs, t.size() - 1));
  }
  const Tensor& y = t.at(kY);
  for (const auto& [role, x] : t) {
    bool fits = x.dims.size() == y.dims.size();
    for (std::size_t i = 0; fits && i < y.dims.size(); ++i) {
      fits = x.dims[i] == y.dims[i] || x.dims[i] == 1;
    }
    if (!fits) return mismatch(fmt::format("{} does not broadcast to {}", text(x), text(y)));
  }
  if (mode != CUDNN_POINTWISE_GEN_INDEX) return {};
  const auto axis = o.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
                        ->one<std::int64_t>(CUDNN_ATTR_POINTWISE_AXIS, -1);
  if (axis >= 0 && axis < static_cast<std::int64_t>(y.dims.size())) return {};
  return mismatch(fmt::format("axis {} of {}", axis, text(y)));
}

Refused check_reduction(const Descriptor& o, const Tensors& t) {
  const auto op = o.descriptor(CUDNN_ATTR_OPERATION_REDUCTION_DESC)
                      ->one(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_REDUCE_TENSOR_ADD);
  if (op != CUDNN_REDUCE_TENSOR_ADD && op != CUDNN_REDUCE_TENSOR_MAX) {
    return unsupported(fmt::format("reduction operator {}", static_cast<int>(op)));
  }
  const Tensor &x = t.at(kX), &y = t.at(kY);
  bool fits = x.dims.size() == y.dims.size();
  for (std::size_t i = 0; fits && i < y.dims.size(); ++i) fits = x.dims[i] % y.dims[i] == 0;
  return fits ? Refused{} : mismatch(fmt::format("{} does not reduce to {}", text(x), text(y)));
}

Refused check_reshape(const Tensors& t) {
  const Tensor &x = t.at(kX), &y = t.at(kY);
  if (x.numel() != y.numel()) {
    return mismatch(fmt::format("{} does not reshape to {}", text(x), text(y)));
  }
  if (x.extent() != y.extent()) {
    return unsupported(fmt::format("{} and {} are not views of one memory", text(x), text(y)));
  }
  return y.is_virtual ? Refused{} : unsupported("reshapes into tensors of the caller");
}

Refused check_convolution(const Descriptor& conv, const Tensor& x, const Tensor& w,
                          const Tensor& y) {
  const auto stride = conv.all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  const auto dilation = conv.all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS);
  const auto before = conv.all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  const auto after = conv.all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
  if (x.dims.size() != 4 || w.dims.size() != 4 || y.dims.size() != 4) {
    return unsupported("convolutions of other than two spatial dimensions");
  }
  bool fits = x.dims[0] == y.dims[0] && w.dims[0] == y.dims[1] && x.dims[1] % w.dims[1] == 0 &&
              w.dims[0] % (x.dims[1] / w.dims[1]) == 0;
  for (int i = 0; i < 2; ++i) {
    const std::int64_t reach = dilation[i] * (w.dims[2 + i] - 1) + 1;
    const std::int64_t room = x.dims[2 + i] + before[i] + after[i] - reach;
    fits = fits && room >= 0 && y.dims[2 + i] == room / stride[i] + 1;
  }
  if (fits) return {};
  return mismatch(fmt::format("convolution of {} by {} to {}", text(x), text(w), text(y)));
}

}  // namespace

Refused check_operation(const Descriptor& o) {
  Tensors t;
  for (const auto& [role, descriptor] : tensors_of(o)) t[role] = tensor_of(*descriptor);
  if (t.at(kY).by_value) return mismatch("the output is a number by value");
  switch (o.type) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return check_matmul(t);
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return check_pointwise(o, t);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return check_reduction(o, t);
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      return check_reshape(t);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      return check_convolution(*o.descriptor(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC),
                               t[kX], t[kB], t[kY]);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return check_convolution(*o.descriptor(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC),
                               t[kY], t[kB], t[kX]);
    default:
      return check_convolution(*o.descriptor(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC),
                               t[kX], t[kY], t[kB]);
  }
}

}  // namespace tessera::emulated::cudnn
