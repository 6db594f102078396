#include "tessera/tensor/ops/scan.h"

#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/kernels/scan.h"
#include "tessera/tensor/ops/index.h"
#include "tessera/tensor/ops/internal/along_dim.h"
#include "tessera/tensor/ops/internal/op_checks.h"

namespace tessera {
namespace {

struct Scan {
  const char* where;
  ScanOp op;
  int dim;
  bool reverse = false;
};

// Checks, and returns the running results of x in `dtype`.
Tensor scanned(const Tensor& x, DType dtype, const Scan& scan) {
  const int d = ops::along_dim(scan.where, x, scan.dim);
  const Tensor out = Tensor::empty(x.shape(), {.dtype = dtype, .device = x.device()});
  launch<ScanKernel>(x.device(), {.x = read(ops::as_line(x).transpose(d, -1)),
                                  .y = write(ops::as_line(out).transpose(d, -1)),
                                  .op = scan.op,
                                  .reverse = scan.reverse});
  return out;
}

Tensor folded(const Tensor& x, const ScanOptions& options, Scan scan) {
  ops::check_defined(scan.where, "the tensor", x);
  scan.reverse = options.reverse;
  const DType own = is_floating(x.dtype()) ? x.dtype() : DType::kI64;
  return scanned(ops::converted(x, options.dtype), options.dtype.value_or(own), scan);
}

ValuesAndIndices extremes(const Tensor& x, const Scan& scan) {
  ops::check_defined(scan.where, "the tensor", x);
  Tensor indices = scanned(x, DType::kI64, scan);
  return {.values = gather(x, scan.dim, indices), .indices = std::move(indices)};
}

}  // namespace

Tensor cumsum(const Tensor& x, int dim, const ScanOptions& options) {
  return folded(x, options, {.where = "cumsum", .op = ScanOp::kSum, .dim = dim});
}

Tensor cumprod(const Tensor& x, int dim, const ScanOptions& options) {
  return folded(x, options, {.where = "cumprod", .op = ScanOp::kProd, .dim = dim});
}

Tensor logcumsumexp(const Tensor& x, int dim, const LogcumsumexpOptions& options) {
  constexpr const char* kWhere = "logcumsumexp";
  ops::check_defined(kWhere, "the tensor", x);
  ops::check_floating(kWhere, x);
  return scanned(
      x, x.dtype(),
      {.where = kWhere, .op = ScanOp::kLogCumSumExp, .dim = dim, .reverse = options.reverse});
}

ValuesAndIndices cummax(const Tensor& x, int dim) {
  return extremes(x, {.where = "cummax", .op = ScanOp::kMax, .dim = dim});
}

ValuesAndIndices cummin(const Tensor& x, int dim) {
  return extremes(x, {.where = "cummin", .op = ScanOp::kMin, .dim = dim});
}

}  // namespace tessera
