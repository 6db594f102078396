#include "tessera/tensor/kernels/cuda/cublas/matmul_parts.h"

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace tessera::cuda {
namespace {

using Args = MatmulKernel::Args;

constexpr std::size_t kPackBytes = 16;

template <class AnyView>
std::int64_t pack_of(const AnyView& view) {
  return static_cast<std::int64_t>(kPackBytes / dtype_size(view.dtype));
}

// Whether all that lies along `dim`, counted from the back, begins at multiples of 16 bytes.
template <class AnyView>
bool begins_aligned(const AnyView& view, int dim) {
  bool aligned = reinterpret_cast<std::uintptr_t>(view.data) % kPackBytes == 0;
  const int along = view.shape.ndim() - dim;
  for (int d = 0; d < view.shape.ndim(); ++d)
    aligned = aligned && (d == along || view.shape[d] == 1 || view.strides[d] % pack_of(view) == 0);
  return aligned;
}

template <class AnyView>
bool is_along(const AnyView& view, int dim) {
  return view.defined() && view.strides[view.shape.ndim() - dim] == 1;
}

template <class AnyView>
AnyView narrowed(const AnyView& view, int dim, std::int64_t begin, std::int64_t length) {
  if (!view.defined()) return view;
  AnyView out = view;
  const int at = view.shape.ndim() - dim;
  const std::int64_t skipped = begin * view.strides[at];
  constexpr bool kReads = std::is_same_v<AnyView, ConstView>;
  using Byte = std::conditional_t<kReads, const std::byte, std::byte>;
  out.data =
      static_cast<Byte*>(view.data) + skipped * static_cast<std::int64_t>(dtype_size(view.dtype));
  out.offset += skipped;
  out.shape[at] = length;
  return out;
}

// The extents of a product. A dim of a view is counted from the back: 1 is the last.
struct Rows {
  static std::int64_t extent(const Args& x) { return x.m(); }
  static bool gains(const Args& x) { return is_along(x.a, 2) && begins_aligned(x.a, 2); }
  static Args part(const Args& x, std::int64_t begin, std::int64_t length) {
    Args out = x;
    out.a = narrowed(x.a, 2, begin, length);
    out.c = narrowed(x.c, 2, begin, length);
    out.before = narrowed(x.before, 2, begin, length);
    return out;
  }
};

struct Columns {
  static std::int64_t extent(const Args& x) { return x.n(); }
  // The result always has rows of unit stride.
  static bool gains(const Args& x) {
    return begins_aligned(x.c, 1) && (!x.before.defined() || begins_aligned(x.before, 1)) &&
           (!is_along(x.b, 1) || begins_aligned(x.b, 1));
  }
  static Args part(const Args& x, std::int64_t begin, std::int64_t length) {
    Args out = x;
    out.b = narrowed(x.b, 1, begin, length);
    out.c = narrowed(x.c, 1, begin, length);
    out.before = narrowed(x.before, 1, begin, length);
    out.bias = narrowed(x.bias, 1, begin, length);
    return out;
  }
};

struct Inner {
  static std::int64_t extent(const Args& x) { return x.k(); }
  // A bias and an activation come after the whole sum.
  static bool gains(const Args& x) {
    const bool along_a = is_along(x.a, 1), along_b = is_along(x.b, 2);
    return !x.bias.defined() && x.activation == ActivationKind::kNone && (along_a || along_b) &&
           (!along_a || begins_aligned(x.a, 1)) && (!along_b || begins_aligned(x.b, 2));
  }
  static Args part(const Args& x, std::int64_t begin, std::int64_t length) {
    Args out = x;
    out.a = narrowed(x.a, 1, begin, length);
    out.b = narrowed(x.b, 2, begin, length);
    return out;
  }
};

// Cuts every product in `parts`, or `all` if there is none; `adds`: the later part adds to the
// former's result.
template <class Extent>
void cut(const Args& all, std::vector<Args>& parts, bool adds) {
  const std::int64_t extent = Extent::extent(all), rest = extent % pack_of(all.a),
                     whole = extent - rest;
  if (rest == 0 || extent < kLeastSplitExtent || !Extent::gains(all)) return;
  if (parts.empty()) parts = {all};
  std::vector<Args> out;
  for (const Args& x : parts) {
    // The few elements first: what is added to them is nearly everything.
    out.push_back(Extent::part(x, whole, rest));
    out.push_back(Extent::part(x, 0, whole));
    if (adds) out.back().beta = 1;
  }
  parts = std::move(out);
}

}  // namespace

std::vector<Args> matmul_parts(const Args& args) {
  std::vector<Args> parts;
  // Tensor cores take 16-bit operands, and f32 ones only where TF32 is allowed.
  if (dtype_size(args.a.dtype) != 2) return parts;
  cut<Inner>(args, parts, true);
  cut<Columns>(args, parts, false);
  cut<Rows>(args, parts, false);
  return parts;
}

}  // namespace tessera::cuda
