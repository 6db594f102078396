#include "tessera/tensor/ops/internal/overlap.h"

#include "tessera/tensor/ops/elementwise.h"

namespace tessera::ops {
namespace {

// The byte range that contains a tensor's elements.
struct Extent {
  std::int64_t begin;
  std::int64_t end;
};

Extent extent_of(const Tensor& x) {
  const auto size = static_cast<std::int64_t>(dtype_size(x.dtype()));
  std::int64_t last = x.offset();
  for (int d = 0; d < x.ndim(); ++d) last += (x.shape()[d] - 1) * x.strides()[d];
  return {x.offset() * size, (last + 1) * size};
}

}  // namespace

bool overlap(const Tensor& a, const Tensor& b) {
  if (a.storage().id() != b.storage().id() || a.numel() == 0 || b.numel() == 0) return false;
  const Extent first = extent_of(a), second = extent_of(b);
  return first.begin < second.end && second.begin < first.end;
}

const Tensor& apart(const Tensor& x, const Tensor& out, Tensor& copy) {
  if (!overlap(x, out)) return x;
  const bool is_same = x.offset() == out.offset() && x.strides() == out.strides() &&
                       x.shape() == out.shape() && x.dtype() == out.dtype();
  if (is_same) return x;
  copy = clone(x);
  return copy;
}

}  // namespace tessera::ops
