#include "tessera/tests/support/emulated_gpu/cublas/cublas_lt_problem.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <limits>

namespace tessera::emulated::cublas {
namespace {

Verdict invalid(std::string why) { return {CUBLAS_STATUS_INVALID_VALUE, std::move(why)}; }
Verdict unsupported(std::string why) { return {CUBLAS_STATUS_NOT_SUPPORTED, std::move(why)}; }

// The rows that Tessera uses of the table "supported types" of cublasLtMatmul's documentation.
struct TypeRow {
  int compute;
  cudaDataType scale, ab, cd;
};
constexpr TypeRow kTypes[] = {
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, CUDA_R_16BF},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16F, CUDA_R_16F},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, CUDA_R_32F},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16F, CUDA_R_32F},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F},
    {CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F},
    {CUBLAS_COMPUTE_64F, CUDA_R_64F, CUDA_R_64F, CUDA_R_64F},
};

Verdict check_types(const Problem& p) {
  for (const TypeRow& row : kTypes) {
    if (p.op.compute_type == row.compute && p.op.scale_type == row.scale &&
        p.a.type == static_cast<std::uint32_t>(row.ab) && p.b.type == p.a.type &&
        p.d.type == static_cast<std::uint32_t>(row.cd)) {
      return {};
    }
  }
  return unsupported(
      fmt::format("compute type {} with scale type {}, A of type {}, B of type {} and D of type {} "
                  "is in no row of the table",
                  p.op.compute_type, p.op.scale_type, p.a.type, p.b.type, p.d.type));
}

Verdict check_layout(const char* name, const MatrixLayout& x, bool written) {
  if (size_of(x.type) == 0) return unsupported(fmt::format("{} has type {}", name, x.type));
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max());
  if (x.rows == 0 || x.cols == 0 || x.rows > kMost || x.cols > kMost) {
    return invalid(fmt::format("{} is {} by {}; extents are 1 to 2^31 - 1", name, x.rows, x.cols));
  }
  const auto rows = static_cast<std::int64_t>(x.rows), cols = static_cast<std::int64_t>(x.cols);
  const bool broadcast = x.ld == 0 && name[0] == 'C';  // documented for C alone
  if (x.ld < rows && !broadcast) {
    return invalid(fmt::format("{} has {} rows and leading dimension {}", name, x.rows, x.ld));
  }
  if (x.batch_count < 1) return invalid(fmt::format("{} has {} batches", name, x.batch_count));
  if (x.batch_stride < 0) {
    return unsupported(fmt::format("{} has batch stride {}", name, x.batch_stride));
  }
  if (!written || x.batch_count == 1) return {};
  // Matrices of a batch may lie one after another, or side by side within a leading dimension.
  const bool after = x.batch_stride >= x.ld * (cols - 1) + rows;
  const bool beside = x.batch_stride >= rows && x.batch_stride * (x.batch_count - 1) + rows <= x.ld;
  if (after || beside) return {};
  return invalid(fmt::format("{} batches of {} overlap: {} by {}, leading dimension {}, stride {}",
                             x.batch_count, name, x.rows, x.cols, x.ld, x.batch_stride));
}

Verdict check_shapes(Problem& p) {
  const bool ta = p.op.trans_a != CUBLAS_OP_N, tb = p.op.trans_b != CUBLAS_OP_N;
  p.m = static_cast<std::int64_t>(p.d.rows), p.n = static_cast<std::int64_t>(p.d.cols);
  p.k = static_cast<std::int64_t>(ta ? p.a.rows : p.a.cols);
  p.batch = p.d.batch_count;
  const auto is = [](const MatrixLayout& x, std::int64_t rows, std::int64_t cols) {
    return static_cast<std::int64_t>(x.rows) == rows && static_cast<std::int64_t>(x.cols) == cols;
  };
  if (!is(p.a, ta ? p.k : p.m, ta ? p.m : p.k) || !is(p.b, tb ? p.n : p.k, tb ? p.k : p.n) ||
      !is(p.c, p.m, p.n)) {
    return invalid(
        fmt::format("shapes disagree: A {} by {}{}, B {} by {}{}, C {} by {}, D {} by {}", p.a.rows,
                    p.a.cols, ta ? " transposed" : "", p.b.rows, p.b.cols, tb ? " transposed" : "",
                    p.c.rows, p.c.cols, p.d.rows, p.d.cols));
  }
  if (p.a.batch_count != p.batch || p.b.batch_count != p.batch || p.c.batch_count != p.batch) {
    return invalid(fmt::format("batch counts disagree: A {}, B {}, C {}, D {}", p.a.batch_count,
                               p.b.batch_count, p.c.batch_count, p.d.batch_count));
  }
  if (p.c.type != p.d.type) {
    return invalid(fmt::format("C has type {}, D has type {}", p.c.type, p.d.type));
  }
  return {};
}

Verdict check_aux(const Problem& p) {
  constexpr std::int64_t kMultiple = 8;
  if (p.op.aux_ld < p.m || p.op.aux_ld % kMultiple != 0) {
    return invalid(
        fmt::format("the epilogue's auxiliary leading dimension is {}: at least the {} "
                    "rows of D and a multiple of {} is needed",
                    p.op.aux_ld, p.m, kMultiple));
  }
  if (p.batch > 1 && (p.op.aux_batch_stride % kMultiple != 0 ||
                      p.op.aux_batch_stride < p.op.aux_ld * (p.n - 1) + p.m)) {
    return invalid(fmt::format("the epilogue's auxiliary batch stride is {} for {} columns of {}",
                               p.op.aux_batch_stride, p.n, p.op.aux_ld));
  }
  return {};
}

Verdict check_epilogue(const Problem& p) {
  constexpr std::uint32_t kEmulated[] = {
      CUBLASLT_EPILOGUE_DEFAULT,   CUBLASLT_EPILOGUE_BIAS,     CUBLASLT_EPILOGUE_GELU,
      CUBLASLT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS};
  if (std::find(std::begin(kEmulated), std::end(kEmulated), p.op.epilogue) == std::end(kEmulated)) {
    return unsupported(fmt::format("epilogue {} is not emulated", p.op.epilogue));
  }
  if (const char* refused = std::getenv("TESSERA_EMULATED_CUBLAS_REFUSED_EPILOGUES");
      refused != nullptr && (std::strtoul(refused, nullptr, 0) & p.op.epilogue) != 0) {
    return unsupported(
        fmt::format("epilogue {}: this run refuses those of {}", p.op.epilogue, refused));
  }
  return epilogue_of(p.op.epilogue).aux ? check_aux(p) : Verdict{};
}

Verdict check_operation(const MatmulDesc& op) {
  const auto is_known = [](int t) { return t == CUBLAS_OP_N || t == CUBLAS_OP_T; };
  if (is_known(op.trans_a) && is_known(op.trans_b)) return {};
  return invalid(fmt::format("transposes {} and {} are not N or T", op.trans_a, op.trans_b));
}

Verdict check(Problem& p) {
  if (Verdict v = check_operation(p.op); !v.ok()) return v;
  if (Verdict v = check_layout("A", p.a, false); !v.ok()) return v;
  if (Verdict v = check_layout("B", p.b, false); !v.ok()) return v;
  if (Verdict v = check_layout("C", p.c, false); !v.ok()) return v;
  if (Verdict v = check_layout("D", p.d, true); !v.ok()) return v;
  if (Verdict v = check_shapes(p); !v.ok()) return v;
  if (Verdict v = check_types(p); !v.ok()) return v;
  return check_epilogue(p);
}

}  // namespace

ReadProblem read_problem(cublasLtMatmulDesc_t op, const Layouts& layouts) {
  ReadProblem read;
  const MatmulDesc* description = content(op);
  const MatrixLayout *a = content(layouts.a), *b = content(layouts.b), *d = content(layouts.d),
                     *c = layouts.c == nullptr ? d : content(layouts.c);
  if (description == nullptr || a == nullptr || b == nullptr || c == nullptr || d == nullptr) {
    read.verdict = invalid("a descriptor is null or not initialised");
    return read;
  }
  read.problem.op = *description;
  read.problem.a = *a, read.problem.b = *b, read.problem.c = *c, read.problem.d = *d;
  read.verdict = check(read.problem);
  return read;
}

Epilogue epilogue_of(std::uint32_t value) {
  constexpr std::uint32_t kAux = 128;  // GELU_AUX is AUX | GELU, and so on
  return {.bias = (value & CUBLASLT_EPILOGUE_BIAS) != 0,
          .aux = (value & kAux) != 0,
          .gelu = (value & CUBLASLT_EPILOGUE_GELU) != 0};
}

std::size_t size_of(std::uint32_t type) {
  switch (type) {
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
    case CUDA_R_32F:
      return 4;
    case CUDA_R_64F:
      return 8;
    default:
      return 0;
  }
}

std::size_t extent_bytes(const MatrixLayout& x) {
  const std::int64_t elements = x.batch_stride * (x.batch_count - 1) +
                                x.ld * (static_cast<std::int64_t>(x.cols) - 1) +
                                static_cast<std::int64_t>(x.rows);
  return static_cast<std::size_t>(elements) * size_of(x.type);
}

bool in_f64(const Problem& problem) { return problem.op.scale_type == CUDA_R_64F; }

}  // namespace tessera::emulated::cublas
