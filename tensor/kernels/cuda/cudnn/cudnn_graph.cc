#include "tessera/tensor/kernels/cuda/cudnn/cudnn_graph.h"

#include <array>
#include <utility>

#include "tessera/tensor/kernels/cuda/cudnn/cudnn_meaning.h"

namespace tessera::cuda {

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type, const char* where)
    : where_(where) {
  cudnnBackendDescriptor_t made = nullptr;
  check_cudnn(cudnnBackendCreateDescriptor(type, &made), where, "cudnnBackendCreateDescriptor");
  descriptor_.reset(made);
}

void CudnnDescriptor::Destroy::operator()(void* descriptor) const {
  cudnnBackendDestroyDescriptor(descriptor);
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                          std::int64_t count, const void* values) {
  check_cudnn(cudnnBackendSetAttribute(get(), name, type, count, values), where_,
              "cudnnBackendSetAttribute");
}
void CudnnDescriptor::set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
  const cudnnBackendDescriptor_t descriptor = value.get();
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &descriptor);
}
void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
  set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}
void CudnnDescriptor::set(cudnnBackendAttributeName_t name, std::int64_t value) {
  set(name, CUDNN_TYPE_INT64, 1, &value);
}
void CudnnDescriptor::set(cudnnBackendAttributeName_t name, bool value) {
  set(name, CUDNN_TYPE_BOOLEAN, 1, &value);
}
void CudnnDescriptor::set(cudnnBackendAttributeName_t name, std::span<const std::int64_t> values) {
  set(name, CUDNN_TYPE_INT64, static_cast<std::int64_t>(values.size()), values.data());
}

std::int64_t CudnnDescriptor::get(cudnnBackendAttributeName_t name,
                                  cudnnBackendAttributeType_t type, std::int64_t room,
                                  void* values) const {
  std::int64_t count = 0;
  check_cudnn(cudnnBackendGetAttribute(get(), name, type, room, &count, values), where_,
              "cudnnBackendGetAttribute");
  return count;
}

std::vector<CudnnDescriptor> CudnnDescriptor::held(cudnnBackendAttributeName_t name,
                                                   cudnnBackendDescriptorType_t type,
                                                   std::int64_t most) const {
  std::vector<CudnnDescriptor> all;
  std::vector<cudnnBackendDescriptor_t> slots;
  for (std::int64_t i = 0; i < most; ++i) {
    all.emplace_back(type, where_);
    slots.push_back(all.back().get());
  }
  const std::int64_t count = get(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, slots.data());
  while (static_cast<std::int64_t>(all.size()) > count) all.pop_back();
  return all;
}

void CudnnDescriptor::finalize() {
  check_cudnn(cudnnBackendFinalize(get()), where_, "cudnnBackendFinalize");
}

bool CudnnDescriptor::try_finalize() {
  const cudnnStatus_t status = cudnnBackendFinalize(get());
  if (cudnn_meaning(status).kind == CudnnKind::kRefusal) return false;
  check_cudnn(status, where_, "cudnnBackendFinalize");
  return true;
}

bool CudnnDescriptor::try_build() {
  const cudnnStatus_t status = cudnnBackendFinalize(get());
  if (cudnn_meaning(status).kind == CudnnKind::kOutOfMemory)
    check_cudnn(status, where_, "cudnnBackendFinalize");
  return status == CUDNN_STATUS_SUCCESS;
}

CudnnGraph::Id CudnnGraph::tensor(const CudnnTensor& t) {
  const auto id = static_cast<Id>(tensors_.size());
  std::vector<std::int64_t> strides = t.strides;
  if (strides.empty()) {
    strides.assign(t.shape.size(), 1);
    for (std::size_t d = t.shape.size() - 1; d > 0; --d) strides[d - 1] = strides[d] * t.shape[d];
  }
  CudnnDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, where_);
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, t.dtype);
  tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, std::span<const std::int64_t>(t.shape));
  tensor.set(CUDNN_ATTR_TENSOR_STRIDES, std::span<const std::int64_t>(strides));
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id + 1);
  tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, t.alignment);
  tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, t.kind == CudnnTensorKind::kVirtual);
  tensor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, t.kind == CudnnTensorKind::kNumber);
  tensor.finalize();
  tensors_.push_back(std::move(tensor));
  return id;
}

CudnnGraph::Id CudnnGraph::number(cudnnDataType_t dtype, int dims) {
  return tensor({.dtype = dtype,
                 .shape = std::vector<std::int64_t>(static_cast<std::size_t>(dims), 1),
                 .strides = {},
                 .kind = CudnnTensorKind::kNumber,
                 .alignment = 4});
}

CudnnDescriptor& CudnnGraph::add(cudnnBackendDescriptorType_t type) {
  return parts_.emplace_back(type, where_);
}
void CudnnGraph::add_operation(CudnnDescriptor operation) {
  operation.finalize();
  operations_.push_back(std::move(operation));
}

void CudnnGraph::matmul(Id a, Id b, Id c) {
  CudnnDescriptor& product = add(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  product.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  product.finalize();
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, where_);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, tensors_[static_cast<std::size_t>(a)]);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, tensors_[static_cast<std::size_t>(b)]);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, tensors_[static_cast<std::size_t>(c)]);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, product);
  add_operation(std::move(operation));
}

void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, const Pointwise& in, Id y) {
  CudnnDescriptor& function = add(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  function.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  function.set(CUDNN_ATTR_POINTWISE_MATH_PREC, in.compute);
  if (in.axis >= 0) function.set(CUDNN_ATTR_POINTWISE_AXIS, in.axis);
  function.finalize();
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, where_);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, function);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, tensors_[static_cast<std::size_t>(in.x)]);
  if (in.b >= 0)
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensors_[static_cast<std::size_t>(in.b)]);
  if (in.t >= 0)
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, tensors_[static_cast<std::size_t>(in.t)]);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensors_[static_cast<std::size_t>(y)]);
  add_operation(std::move(operation));
}

void CudnnGraph::reduce(cudnnReduceTensorOp_t op, Id x, Id y) {
  CudnnDescriptor& reduction = add(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  reduction.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op);
  reduction.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  reduction.finalize();
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, where_);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, tensors_[static_cast<std::size_t>(x)]);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, tensors_[static_cast<std::size_t>(y)]);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, reduction);
  add_operation(std::move(operation));
}

void CudnnGraph::reshape(Id x, Id y) {
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, where_);
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, tensors_[static_cast<std::size_t>(x)]);
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, tensors_[static_cast<std::size_t>(y)]);
  add_operation(std::move(operation));
}

namespace {

// The attributes of one kind of convolution.
struct ConvNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t alpha, beta, conv, w, x, y;
};

ConvNames conv_names(CudnnConvKind kind) {
  switch (kind) {
    case CudnnConvKind::kBackwardInput:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY};
    case CudnnConvKind::kBackwardWeight:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY};
    default:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y};
  }
}

}  // namespace

void CudnnGraph::convolution(CudnnConvKind kind, const Convolution& c, Id x, Id w, Id y) {
  CudnnDescriptor& windows = add(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  windows.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, c.compute);
  windows.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  windows.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2});
  windows.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, std::span<const std::int64_t>(c.padding));
  windows.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, std::span<const std::int64_t>(c.padding));
  windows.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, std::span<const std::int64_t>(c.stride));
  windows.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, std::span<const std::int64_t>(c.dilation));
  windows.finalize();
  const ConvNames names = conv_names(kind);
  CudnnDescriptor operation(names.type, where_);
  operation.set(names.conv, windows);
  operation.set(names.x, tensors_[static_cast<std::size_t>(x)]);
  operation.set(names.w, tensors_[static_cast<std::size_t>(w)]);
  operation.set(names.y, tensors_[static_cast<std::size_t>(y)]);
  const double alpha = 1;
  if (c.compute == CUDNN_DATA_DOUBLE) {
    operation.set(names.alpha, CUDNN_TYPE_DOUBLE, 1, &alpha);
    operation.set(names.beta, CUDNN_TYPE_DOUBLE, 1, &c.beta);
  } else {
    const float alpha32 = 1, beta32 = static_cast<float>(c.beta);
    operation.set(names.alpha, CUDNN_TYPE_FLOAT, 1, &alpha32);
    operation.set(names.beta, CUDNN_TYPE_FLOAT, 1, &beta32);
  }
  add_operation(std::move(operation));
}

}  // namespace tessera::cuda
