// The attributes that Tessera uses, with the types and counts of the documentation.

#include "tessera/tests/support/emulated_gpu/cudnn/cudnn_descriptor.h"

namespace tessera::emulated::cudnn {
namespace {

constexpr std::int64_t kMany = 4096;
constexpr auto kInt = CUDNN_TYPE_INT64;
constexpr auto kDescriptor = CUDNN_TYPE_BACKEND_DESCRIPTOR;
constexpr auto kType = CUDNN_TYPE_DATA_TYPE;

constexpr Schema required(int descriptor, int attribute, cudnnBackendAttributeType_t type,
                          std::int64_t most = 1) {
  return {descriptor, attribute, type, type, 1, most, true, false};
}
constexpr Schema optional(int descriptor, int attribute, cudnnBackendAttributeType_t type,
                          std::int64_t most = 1) {
  return {descriptor, attribute, type, type, 1, most, false, false};
}
constexpr Schema factor(int descriptor, int attribute) {
  return {descriptor, attribute, CUDNN_TYPE_FLOAT, CUDNN_TYPE_DOUBLE, 1, 1, true, false};
}
constexpr Schema computed(int descriptor, int attribute, cudnnBackendAttributeType_t type) {
  return {descriptor, attribute, type, type, 0, kMany, false, true};
}

constexpr int kTensor = CUDNN_BACKEND_TENSOR_DESCRIPTOR;
constexpr int kMatmul = CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
constexpr int kPointwise = CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR;
constexpr int kReduction = CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR;
constexpr int kReshape = CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR;
constexpr int kForward = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
constexpr int kData = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
constexpr int kFilter = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
constexpr int kConvolution = CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR;
constexpr int kGraph = CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR;
constexpr int kHeuristics = CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR;
constexpr int kEngine = CUDNN_BACKEND_ENGINE_DESCRIPTOR;
constexpr int kConfig = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
constexpr int kKnobChoice = CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR;
constexpr int kPlan = CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR;
constexpr int kPack = CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR;

constexpr Schema kSchemas[] = {
    required(kTensor, CUDNN_ATTR_TENSOR_DATA_TYPE, kType),
    required(kTensor, CUDNN_ATTR_TENSOR_DIMENSIONS, kInt, CUDNN_DIM_MAX),
    required(kTensor, CUDNN_ATTR_TENSOR_STRIDES, kInt, CUDNN_DIM_MAX),
    required(kTensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, kInt),
    required(kTensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kInt),
    optional(kTensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN),
    optional(kTensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN),

    required(CUDNN_BACKEND_MATMUL_DESCRIPTOR, CUDNN_ATTR_MATMUL_COMP_TYPE, kType),
    required(kMatmul, CUDNN_ATTR_OPERATION_MATMUL_ADESC, kDescriptor),
    required(kMatmul, CUDNN_ATTR_OPERATION_MATMUL_BDESC, kDescriptor),
    required(kMatmul, CUDNN_ATTR_OPERATION_MATMUL_CDESC, kDescriptor),
    required(kMatmul, CUDNN_ATTR_OPERATION_MATMUL_DESC, kDescriptor),

    required(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MODE,
             CUDNN_TYPE_POINTWISE_MODE),
    required(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MATH_PREC, kType),
    optional(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_AXIS, kInt),
    required(kPointwise, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kDescriptor),
    required(kPointwise, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, kDescriptor),
    optional(kPointwise, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, kDescriptor),
    optional(kPointwise, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, kDescriptor),
    required(kPointwise, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, kDescriptor),

    required(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_OPERATOR,
             CUDNN_TYPE_REDUCTION_OPERATOR_TYPE),
    required(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_COMP_TYPE, kType),
    required(kReduction, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, kDescriptor),
    required(kReduction, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, kDescriptor),
    required(kReduction, CUDNN_ATTR_OPERATION_REDUCTION_DESC, kDescriptor),

    required(kReshape, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, kDescriptor),
    required(kReshape, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, kDescriptor),

    required(kConvolution, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, kType),
    required(kConvolution, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE),
    required(kConvolution, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, kInt),
    required(kConvolution, CUDNN_ATTR_CONVOLUTION_DILATIONS, kInt, CUDNN_DIM_MAX),
    required(kConvolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, kInt, CUDNN_DIM_MAX),
    required(kConvolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, kInt, CUDNN_DIM_MAX),
    required(kConvolution, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, kInt, CUDNN_DIM_MAX),
    factor(kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA),
    factor(kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA),
    required(kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, kDescriptor),
    required(kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, kDescriptor),
    required(kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, kDescriptor),
    required(kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, kDescriptor),
    factor(kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA),
    factor(kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA),
    required(kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, kDescriptor),
    required(kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, kDescriptor),
    required(kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, kDescriptor),
    required(kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, kDescriptor),
    factor(kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA),
    factor(kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA),
    required(kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, kDescriptor),
    required(kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, kDescriptor),
    required(kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, kDescriptor),
    required(kFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, kDescriptor),

    optional(kGraph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE),
    required(kGraph, CUDNN_ATTR_OPERATIONGRAPH_OPS, kDescriptor, kMany),
    required(kHeuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, kDescriptor),
    required(kHeuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE),
    computed(kHeuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, kDescriptor),
    required(kEngine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, kDescriptor),
    required(kEngine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, kInt),
    computed(kEngine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE),
    required(kConfig, CUDNN_ATTR_ENGINECFG_ENGINE, kDescriptor),
    computed(kConfig, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, kDescriptor),
    required(kKnobChoice, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE),
    required(kKnobChoice, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, kInt),
    required(kPlan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, kDescriptor),
    computed(kPlan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, kInt),
    required(kPack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, kInt, kMany),
    required(kPack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, kMany),
    optional(kPack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR),
};

}  // namespace

const Schema* find_schema(int descriptor, int attribute) {
  for (const Schema& one : kSchemas) {
    if (one.descriptor == descriptor && one.attribute == attribute) return &one;
  }
  return nullptr;
}

std::vector<const Schema*> schemas_of(int descriptor) {
  std::vector<const Schema*> all;
  for (const Schema& one : kSchemas) {
    if (one.descriptor == descriptor) all.push_back(&one);
  }
  return all;
}

std::size_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
      return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    default:
      return 4;  // FLOAT, INT32 and the enumerations
  }
}

}  // namespace tessera::emulated::cudnn
