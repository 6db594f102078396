#include "tessera/tensor/kernels/launch_facts.h"

#include <array>
#include <cstddef>

namespace tessera::detail {

namespace {

// In the order of the enumerators.

constexpr auto kUnaryNames = std::to_array({
#define TESSERA_NAME(function, ...) #function,
    TESSERA_UNARY_FUNCTIONS(TESSERA_NAME) TESSERA_UNARY_BITWISE(TESSERA_NAME)
        TESSERA_UNARY_PREDICATES(TESSERA_NAME)
#undef TESSERA_NAME
});
constexpr auto kBinaryNames = std::to_array<const char*>({"add",
                                                          "sub",
                                                          "mul",
                                                          "div",
                                                          "div",
                                                          "floor_divide",
                                                          "fmod",
                                                          "remainder",
                                                          "pow",
                                                          "maximum",
                                                          "minimum",
                                                          "fmax",
                                                          "fmin",
                                                          "atan2",
                                                          "hypot",
                                                          "copysign",
                                                          "logaddexp",
                                                          "logaddexp2",
                                                          "xlogy",
                                                          "polygamma",
                                                          "bitwise_and",
                                                          "bitwise_or",
                                                          "bitwise_xor",
                                                          "bitwise_left_shift",
                                                          "bitwise_right_shift",
                                                          "eq",
                                                          "ne",
                                                          "lt",
                                                          "le",
                                                          "gt",
                                                          "ge",
                                                          "logical_and",
                                                          "logical_or",
                                                          "logical_xor",
                                                          "relu_backward",
                                                          "gelu_backward",
                                                          "gelu_tanh_backward",
                                                          "silu_backward",
                                                          "softplus_backward",
                                                          "tanh_backward",
                                                          "sigmoid_backward"});
constexpr auto kTernaryNames =
    std::to_array<const char*>({"where", "clamp", "lerp", "addcmul", "addcdiv", "nan_to_num"});
static_assert(kUnaryNames.size() == static_cast<std::size_t>(UnaryOp::kCount));
static_assert(kBinaryNames.size() == static_cast<std::size_t>(BinaryOp::kCount));
static_assert(kTernaryNames.size() == static_cast<std::size_t>(TernaryOp::kCount));

}  // namespace

const char* operation_of(const UnaryKernel::Args& args) {
  return kUnaryNames[static_cast<std::size_t>(args.op)];
}

const char* operation_of(const BinaryKernel::Args& args) {
  return kBinaryNames[static_cast<std::size_t>(args.op)];
}

const char* operation_of(const TernaryKernel::Args& args) {
  return kTernaryNames[static_cast<std::size_t>(args.op)];
}

const char* operation_of(const AxpbyKernel::Args& args) {
  if (!args.x.defined()) return "fill";
  if (args.alpha != 1 || args.beta != 0) return "axpby";
  return args.x.dtype == args.y.dtype ? "copy" : "cast";
}

const char* operation_of(const ReduceKernel::Args& args) {
  switch (args.op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMean:
      return "mean";
    case ReduceOp::kSumOfSquares:
      return "sum_of_squares";
    case ReduceOp::kNorm2:
    case ReduceOp::kNormP:
    case ReduceOp::kSumAbs:
    case ReduceOp::kMaxAbs:
    case ReduceOp::kMinAbs:
      return "norm";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kProd:
      return "prod";
    case ReduceOp::kCountNonzero:
      return "count_nonzero";
    case ReduceOp::kAny:
      return "any";
    case ReduceOp::kAll:
      return "all";
    case ReduceOp::kLogSumExp:
      return "logsumexp";
    case ReduceOp::kVar:
      return "var";
    case ReduceOp::kStddev:
      return "stddev";
  }
  return nullptr;
}

const char* operation_of(const ScanKernel::Args& args) {
  switch (args.op) {
    case ScanOp::kSum:
      return "cumsum";
    case ScanOp::kProd:
      return "cumprod";
    case ScanOp::kMax:
      return "cummax";
    case ScanOp::kMin:
      return "cummin";
    case ScanOp::kLogCumSumExp:
      return "logcumsumexp";
  }
  return ScanKernel::kName;
}

const char* operation_of(const SoftmaxKernel::Args& args) {
  return args.log ? "log_softmax" : "softmax";
}

const char* operation_of(const RowNormKernel::Args& args) {
  return args.centered ? "layer_norm" : "rms_norm";
}

std::int64_t flops_of(const MatmulKernel::Args& args) {
  return 2 * args.c.shape.numel() * args.k();
}

namespace {

std::int64_t conv_flops(const ConvGeometry& g) {
  return 2 * g.positions() * g.groups * g.out_channels * g.depth();
}

std::int64_t attending_pairs(const AttentionGeometry& g, const AttentionRule& rule) {
  std::int64_t pairs = 0;
  for (std::int64_t query = 0; query < g.queries; ++query)
    pairs += rule.visible_end(query + 1, g.keys);
  return g.batch * g.heads * pairs;
}

}  // namespace

std::int64_t flops_of(const ConvKernel::Args& args) { return conv_flops(args.g); }
std::int64_t flops_of(const ConvBackwardInputKernel::Args& args) { return conv_flops(args.g); }
std::int64_t flops_of(const ConvBackwardWeightKernel::Args& args) { return conv_flops(args.g); }

std::int64_t flops_of(const AttentionKernel::Args& args) {
  const AttentionGeometry g(args.q, args.k, args.v);
  return 2 * attending_pairs(g, args.rule) * (g.dim + g.value_dim);
}

std::int64_t flops_of(const AttentionBackwardKernel::Args& args) {
  const AttentionGeometry g(args.q, args.k, args.v);
  return 2 * attending_pairs(g, args.rule) * (3 * g.dim + 2 * g.value_dim);
}

}  // namespace tessera::detail
