#include "tessera/tensor/kernels/cuda/cublas/matmul_plan.h"

#include <algorithm>
#include <limits>

#include "tessera/tensor/check.h"

namespace tessera::cuda {
namespace {

// A dim of the batch with the strides of all operands.
using Dim = MatmulPlan::Loop;

bool is_16_bit(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }

bool library_writes(DType operands, DType result) {
  return operands == result || (is_16_bit(operands) && result == DType::kF32);
}

// Whether `to` represents every number of `from`.
bool converts_exactly(DType from, DType to) {
  return from == to || to == DType::kF64 || (is_16_bit(from) && to == DType::kF32);
}

template <class AnyView>
std::int64_t row_stride(const AnyView& view) {
  return view.strides[view.shape.ndim() - 2];
}

template <class AnyView>
std::int64_t batch_dim_stride(const AnyView& view, int dim) {
  return view.defined() ? view.strides[dim] : 0;
}

bool merges(const Dim& outer, const Dim& inner) {
  const auto fits = [&](std::int64_t long_one, std::int64_t short_one) {
    return long_one == short_one * inner.extent;
  };
  return fits(outer.strides.a, inner.strides.a) && fits(outer.strides.b, inner.strides.b) &&
         fits(outer.strides.c, inner.strides.c) && fits(outer.strides.before, inner.strides.before);
}

// The longest dim that one stride of each operand covers becomes the batch of the calls; the other
// dims are looped over.
void plan_batch(const MatmulKernel::Args& args, MatmulPlan& plan) {
  Dim dims[kMaxDims];
  int count = 0;
  for (int d = 0; d + 2 < args.c.shape.ndim(); ++d) {
    if (args.c.shape[d] == 1) continue;
    const Dim dim = {.extent = args.c.shape[d],
                     .strides = {.a = args.a.strides[d],
                                 .b = args.b.strides[d],
                                 .c = args.c.strides[d],
                                 .before = batch_dim_stride(args.before, d)}};
    if (count > 0 && merges(dims[count - 1], dim)) {
      dims[count - 1] = {.extent = dims[count - 1].extent * dim.extent, .strides = dim.strides};
    } else {
      dims[count++] = dim;
    }
  }
  const Dim* longest = std::max_element(
      dims, dims + count, [](const Dim& x, const Dim& y) { return x.extent < y.extent; });
  for (const Dim* dim = dims; dim != dims + count; ++dim) {
    if (dim == longest) {
      plan.batch = dim->extent;
      plan.batch_strides = dim->strides;
    } else {
      plan.loop[plan.loops++] = *dim;
      plan.calls *= dim->extent;
    }
  }
  plan.calls *= plan.pieces();
}

// A matrix [rows, columns] with settled strides, by columns; `transposed` is true if that gives the
// matrix itself where its transpose is needed.
LtMatrix operand(const ConstView& view, std::int64_t batch_stride, bool& transposed) {
  const int ndim = view.shape.ndim();
  const std::int64_t rows = view.shape[ndim - 2], columns = view.shape[ndim - 1],
                     row = view.strides[ndim - 2], column = view.strides[ndim - 1];
  const bool by_rows = column == 1 && row >= columns;
  transposed = !by_rows;
  LtMatrix out;
  out.dtype = view.dtype;
  out.rows = by_rows ? columns : rows;
  out.columns = by_rows ? rows : columns;
  out.leading = by_rows ? row : column;
  out.batch_stride = batch_stride;
  return out;
}

// Rows of unit stride; a single row has no stride of its own.
LtMatrix output(const View& view, std::int64_t batch_stride) {
  const int ndim = view.shape.ndim();
  const std::int64_t m = view.shape[ndim - 2], n = view.shape[ndim - 1];
  return {.dtype = view.dtype,
          .rows = n,
          .columns = m,
          .leading = m == 1 ? n : row_stride(view),
          .batch_stride = batch_stride};
}

// The library writes aux 8 elements at a time.
bool fits_aux(const LtMatrix& before, const void* data) {
  return before.leading % 8 == 0 && before.batch_stride % 8 == 0 &&
         reinterpret_cast<std::uintptr_t>(data) % kEpilogueAlignment == 0;
}

void plan_fused(const MatmulKernel::Args& args, MatmulPlan& plan) {
  if (plan.staged || args.activation != ActivationKind::kGeluTanh || !is_16_bit(args.c.dtype))
    return;
  const bool bias = args.bias.defined(), keeps = args.before.defined();
  plan.fused = plan.plain;
  plan.fused.result = output(args.c, plan.batch_strides.c);
  if (keeps) {
    const LtMatrix before = output(args.before, plan.batch_strides.before);
    // The matrices of other calls begin at multiples of the loop strides.
    for (int i = 0; i < plan.loops; ++i) {
      if (plan.loop[i].strides.before % 8 != 0) return;
    }
    if (!fits_aux(before, args.before.data)) return;
    // With a bias, and gaps between the rows, cuBLASLt 13.0 wrote other values on an H100.
    const bool gaps = before.leading != before.rows || plan.fused.result.leading != before.rows;
    if (bias && gaps) return;
    plan.fused.aux_leading = before.leading;
    plan.fused.aux_batch_stride = before.batch_stride;
  }
  plan.fuses = true;
  plan.fused.epilogue = keeps ? (bias ? LtEpilogue::kGeluAuxBias : LtEpilogue::kGeluAux)
                              : (bias ? LtEpilogue::kGeluBias : LtEpilogue::kGelu);
}

void check_extents(const MatmulKernel::Args& args) {
  const std::int64_t m = args.m(), n = args.n(), k = args.k();
  TESSERA_CHECK(std::max({m, n, k}) <= std::numeric_limits<std::int32_t>::max(), "matmul",
                "cuBLAS counts rows and columns up to 2147483647, but this product is {} x {} by "
                "{} x {}; split the longest dim",
                m, k, k, n);
}

std::size_t rounded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

MatmulCall MatmulPlan::call(std::int64_t index) const {
  MatmulCall at;
  const auto advance = [&](const MatmulCall& strides, std::int64_t steps) {
    at.a += steps * strides.a;
    at.b += steps * strides.b;
    at.c += steps * strides.c;
    at.before += steps * strides.before;
  };
  const std::int64_t first = index % pieces() * kMostInBatch;
  at.batch = std::min(batch - first, kMostInBatch);
  advance(batch_strides, first);
  index /= pieces();
  for (int i = loops - 1; i >= 0; --i) {
    advance(loop[i].strides, index % loop[i].extent);
    index /= loop[i].extent;
  }
  return at;
}

MatmulPlan plan_matmul(const MatmulKernel::Args& args, const MatmulPlanOptions& options) {
  check_extents(args);
  MatmulPlan plan;
  plan_batch(args, plan);
  const bool f64 = args.a.dtype == DType::kF64, bias = args.bias.defined();
  plan.multiplies = args.k() > 0;
  plan.staged = !plan.multiplies || !library_writes(args.a.dtype, args.c.dtype) ||
                (bias && !converts_exactly(args.bias.dtype, args.c.dtype));
  LtProduct& product = plan.plain;
  product.compute = f64                                           ? LtCompute::kF64
                    : options.tf32 && args.a.dtype == DType::kF32 ? LtCompute::kTf32
                                                                  : LtCompute::kF32;
  product.first = operand(args.b, plan.batch_strides.b, product.first_transposed);
  product.second = operand(args.a, plan.batch_strides.a, product.second_transposed);
  product.batch = std::min(plan.batch, kMostInBatch);
  if (plan.staged) {
    product.result = {.dtype = f64 ? DType::kF64 : DType::kF32,
                      .rows = args.n(),
                      .columns = args.m(),
                      .leading = args.n(),
                      .batch_stride = args.m() * args.n()};
  } else {
    product.result = args.before.defined() ? output(args.before, plan.batch_strides.before)
                                           : output(args.c, plan.batch_strides.c);
    product.epilogue = bias ? LtEpilogue::kBias : LtEpilogue::kNone;
  }
  plan_fused(args, plan);
  return plan;
}

bool takes_bias(const MatmulKernel::Args& args) {
  const ConstView& bias = args.bias;
  return bias.dtype == args.c.dtype && (bias.strides[0] == 1 || args.n() == 1) &&
         reinterpret_cast<std::uintptr_t>(bias.data) % kEpilogueAlignment == 0;
}

MatmulScratch matmul_scratch(const MatmulKernel::Args& args, const MatmulPlan& plan) {
  constexpr std::size_t kLeast = std::size_t{1} << 20, kMost = std::size_t{32} << 20;
  constexpr std::size_t kPartialResults = 64;
  MatmulScratch scratch;
  if (args.bias.defined() && !plan.staged)
    scratch.bias = rounded(static_cast<std::size_t>(args.n()) * dtype_size(args.c.dtype));
  if (!plan.multiplies) return scratch;
  const std::size_t elements =
      static_cast<std::size_t>(plan.plain.batch) * static_cast<std::size_t>(args.m() * args.n());
  const std::size_t result = elements * (args.a.dtype == DType::kF64 ? 8 : 4);
  if (plan.staged) scratch.product = rounded(result);
  scratch.library = std::min(kMost, kLeast + rounded(std::min(result, kMost) * kPartialResults));
  return scratch;
}

}  // namespace tessera::cuda
