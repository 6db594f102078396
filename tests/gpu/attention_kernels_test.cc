// Attention on a GPU against the CPU's kernel, which is the specification.

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/tensor/kernels/attention.h"
#include "tessera/tensor/kernels/cuda/cudnn/cudnn_kernels.h"
#include "tessera/tests/gpu/comparison.h"

namespace tessera {
namespace {

using testing::compare_devices;
using testing::HostTensor;
using testing::Tolerance;

enum class MaskKind { kNone, kBool, kFloat, kBroadcast };

struct Case {
  std::string what;
  DType dtype = DType::kF32;
  std::int64_t batch = 1, heads = 1, kv_heads = 1, queries = 1, keys = 1, dim = 1, value_dim = 1;
  bool causal = false;
  std::int64_t diagonal = 0;
  MaskKind mask = MaskKind::kNone;
  double dropout_p = 0;
  bool transposed = false;  // [batch, length, heads, dim] seen as [batch, heads, length, dim]
  std::int64_t first = 0;   // offset of the operands, in elements
};

Tolerance tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return {.rtol = 1e-11, .atol = 1e-12};
    case DType::kBF16:
      return {.rtol = 2e-2, .atol = 2e-2};
    case DType::kF16:
      return {.rtol = 3e-3, .atol = 3e-3};
    default:
      return {.rtol = 2e-5, .atol = 2e-5};
  }
}

HostTensor operand(const Case& c, std::int64_t heads, std::int64_t length, std::int64_t dim) {
  const Shape shape{c.batch, heads, length, dim};
  const Shape strides =
      c.transposed ? Shape{length * heads * dim, dim, heads * dim, 1} : contiguous_strides(shape);
  return HostTensor(c.dtype, shape, strides, c.first);
}

HostTensor mask_of(const Case& c) {
  const Shape shape{c.batch, c.heads, c.queries, c.keys};
  switch (c.mask) {
    case MaskKind::kBool:
      return HostTensor(DType::kBool, shape).filled([&](std::int64_t i) {
        const std::int64_t query = i / c.keys % c.queries;
        return query == 2 ? 0.0 : i % 3 == 0 ? 0.0 : 1.0;  // row 2 attends to no key
      });
    case MaskKind::kFloat:
      return HostTensor(c.dtype == DType::kBF16 ? DType::kF32 : c.dtype, shape).random(-1, 1, 9);
    default:
      return HostTensor(DType::kBool, shape, {c.keys, 0, 0, 1}).filled([](std::int64_t i) {
        return i % 5 == 1 ? 0.0 : 1.0;
      });
  }
}

AttentionRule rule_of(const Case& c, const HostTensor* mask) {
  AttentionRule rule;
  if (mask != nullptr) rule.mask = *mask;
  rule.causal = c.causal;
  rule.diagonal = c.diagonal;
  rule.scale = 1 / std::sqrt(static_cast<double>(c.dim));
  rule.dropout_p = c.dropout_p;
  rule.key = 0x1234567890abcdefu;
  rule.first_position = 5;
  rule.position_strides = {4 * c.heads * c.queries * c.keys, c.queries * (c.keys + 3), c.keys + 3,
                           1};
  return rule;
}

void compare_forward(const Case& c) {
  const HostTensor q = operand(c, c.heads, c.queries, c.dim).random(-2, 2, 1),
                   k = operand(c, c.kv_heads, c.keys, c.dim).random(-2, 2, 2),
                   v = operand(c, c.kv_heads, c.keys, c.value_dim).random(-2, 2, 3);
  const HostTensor out = operand(c, c.heads, c.queries, c.value_dim),
                   log_sum_exp(compute_dtype(c.dtype), {c.batch, c.heads, c.queries}),
                   mask = mask_of(c);
  compare_devices<AttentionKernel>(
      c.what,
      {.q = q,
       .k = k,
       .v = v,
       .out = out,
       .log_sum_exp = log_sum_exp,
       .rule = rule_of(c, c.mask == MaskKind::kNone ? nullptr : &mask)},
      tolerance_of(c.dtype));
}

// The derivative needs a matching output and log_sum_exp: those of the CPU's forward.
void compare_backward(const Case& c, bool fixed_order) {
  const HostTensor q = operand(c, c.heads, c.queries, c.dim).random(-2, 2, 1),
                   k = operand(c, c.kv_heads, c.keys, c.dim).random(-2, 2, 2),
                   v = operand(c, c.kv_heads, c.keys, c.value_dim).random(-2, 2, 3),
                   dout = operand(c, c.heads, c.queries, c.value_dim).random(-1, 1, 4);
  const HostTensor out = operand(c, c.heads, c.queries, c.value_dim),
                   log_sum_exp(compute_dtype(c.dtype), {c.batch, c.heads, c.queries}),
                   mask = mask_of(c);
  const AttentionRule rule = rule_of(c, c.mask == MaskKind::kNone ? nullptr : &mask);
  const AttentionKernel::Args forward{
      .q = q, .k = k, .v = v, .out = out, .log_sum_exp = log_sum_exp, .rule = rule};
  std::vector<std::uint64_t> scratch(AttentionKernel::workspace(forward) / 8 + 16);
  void* aligned = scratch.data();
  std::size_t space = scratch.size() * 8;
  std::align(64, space - 64, aligned, space);
  std::get<CpuEntry<AttentionKernel>>(cpu_table())
      .run(forward, {.data = aligned, .bytes = AttentionKernel::workspace(forward)});
  const HostTensor dq = operand(c, c.heads, c.queries, c.dim),
                   dk = operand(c, c.kv_heads, c.keys, c.dim),
                   dv = operand(c, c.kv_heads, c.keys, c.value_dim);
  Tolerance tolerance = tolerance_of(c.dtype);
  tolerance.atol *= 4;
  compare_devices<AttentionBackwardKernel>(c.what,
                                           {.dout = dout,
                                            .q = q,
                                            .k = k,
                                            .v = v,
                                            .out = out,
                                            .log_sum_exp = log_sum_exp,
                                            .dq = dq,
                                            .dk = dk,
                                            .dv = dv,
                                            .rule = rule,
                                            .fixed_order = fixed_order},
                                           tolerance);
}

void compare_backward(const Case& c) {
  for (const bool fixed_order : {true, false}) {
    INFO((fixed_order ? "in a fixed order" : "in any order"));
    compare_backward(c, fixed_order);
  }
}

void compare(const Case& c) {
  INFO(dtype_name(c.dtype));
  compare_forward(c);
  compare_backward(c);
}

constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};

}  // namespace

TEST_CASE("attention on the GPU equals the CPU's in every dtype") {
  for (const DType dtype : kDTypes) {
    compare({.what = "one of everything", .dtype = dtype});
    compare({.what = "a whole tile",
             .dtype = dtype,
             .heads = 2,
             .kv_heads = 2,
             .queries = 64,
             .keys = 64,
             .dim = 16,
             .value_dim = 16});
    compare({.what = "odd sizes",
             .dtype = dtype,
             .batch = 2,
             .heads = 2,
             .kv_heads = 2,
             .queries = 33,
             .keys = 71,
             .dim = 7,
             .value_dim = 5});
  }
}

TEST_CASE("causal attention and groups of heads on the GPU") {
  for (const DType dtype : kDTypes) {
    compare({.what = "causal",
             .dtype = dtype,
             .heads = 2,
             .kv_heads = 1,
             .queries = 70,
             .keys = 70,
             .dim = 8,
             .value_dim = 8,
             .causal = true});
  }
  compare({.what = "rows that see no key",
           .heads = 2,
           .kv_heads = 2,
           .queries = 40,
           .keys = 30,
           .dim = 8,
           .value_dim = 8,
           .causal = true,
           .diagonal = -10});
  compare({.what = "bottom right",
           .heads = 4,
           .kv_heads = 2,
           .queries = 5,
           .keys = 80,
           .dim = 8,
           .value_dim = 8,
           .causal = true,
           .diagonal = 75});
  compare({.what = "no row sees a key",
           .queries = 4,
           .keys = 3,
           .dim = 4,
           .value_dim = 4,
           .causal = true,
           .diagonal = -20});
}

TEST_CASE("attention under masks on the GPU") {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    for (const MaskKind mask : {MaskKind::kBool, MaskKind::kFloat, MaskKind::kBroadcast}) {
      compare({.what = "mask",
               .dtype = dtype,
               .batch = 2,
               .heads = 2,
               .kv_heads = 1,
               .queries = 9,
               .keys = 67,
               .dim = 8,
               .value_dim = 4,
               .mask = mask});
    }
  }
  compare({.what = "mask and causal",
           .heads = 2,
           .kv_heads = 2,
           .queries = 67,
           .keys = 67,
           .dim = 4,
           .value_dim = 4,
           .causal = true,
           .mask = MaskKind::kBool});
}

TEST_CASE("dropout of attention draws the CPU's numbers on the GPU") {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16}) {
    compare({.what = "dropout",
             .dtype = dtype,
             .batch = 2,
             .heads = 2,
             .kv_heads = 1,
             .queries = 35,
             .keys = 69,
             .dim = 8,
             .value_dim = 8,
             .causal = true,
             .dropout_p = 0.3});
  }
  compare({.what = "everything dropped",
           .queries = 3,
           .keys = 5,
           .dim = 4,
           .value_dim = 4,
           .dropout_p = 1});
}

TEST_CASE("attention of any layout on the GPU") {
  for (const DType dtype : kDTypes) {
    compare({.what = "transposed heads",
             .dtype = dtype,
             .batch = 2,
             .heads = 3,
             .kv_heads = 3,
             .queries = 20,
             .keys = 20,
             .dim = 16,
             .value_dim = 24,
             .transposed = true});
    compare({.what = "misaligned",
             .dtype = dtype,
             .heads = 2,
             .kv_heads = 2,
             .queries = 20,
             .keys = 20,
             .dim = 16,
             .value_dim = 16,
             .first = 1});
  }
}

TEST_CASE("attention that cuDNN computes equals the CPU's") {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const std::int64_t kv_heads : {4, 2}) {
      Case c{.what = "heads of 16",
             .dtype = dtype,
             .batch = 2,
             .heads = 4,
             .kv_heads = kv_heads,
             .queries = 24,
             .keys = 24,
             .dim = 16,
             .value_dim = 8};
      compare(c);
      c.causal = true;
      compare(c);
      c.transposed = true;
      c.keys = 30;
      c.diagonal = 6;
      compare(c);
    }
  }
}

TEST_CASE("the derivative of attention in slices equals the whole") {
  const Case c{.what = "slices",
               .dtype = DType::kBF16,
               .batch = 4,
               .heads = 4,
               .kv_heads = 2,
               .queries = 16,
               .keys = 16,
               .dim = 8,
               .value_dim = 8,
               .causal = true,
               .transposed = true};
  constexpr std::int64_t kEntry = 2 * 4 * 16 * 16;
  for (const std::int64_t bytes : {2 * kEntry, kEntry, kEntry / 2, std::int64_t{1}}) {
    INFO("slices of " << bytes << " bytes");
    const std::int64_t before = cuda::set_attention_slice_bytes(bytes);
    compare_backward(c);
    cuda::set_attention_slice_bytes(before);
  }
}

TEST_CASE("attention with more columns than one block computes") {
  compare({.what = "wide f32", .queries = 5, .keys = 6, .dim = 150, .value_dim = 260});
  compare({.what = "wide f64",
           .dtype = DType::kF64,
           .queries = 5,
           .keys = 6,
           .dim = 140,
           .value_dim = 70});
}

TEST_CASE("attention of empty operands on the GPU") {
  compare({.what = "no batch", .batch = 0, .queries = 3, .keys = 3, .dim = 4, .value_dim = 4});
  compare({.what = "no queries", .queries = 0, .keys = 3, .dim = 4, .value_dim = 4});
  compare({.what = "no keys", .queries = 3, .keys = 0, .dim = 4, .value_dim = 4});
}

}  // namespace tessera
