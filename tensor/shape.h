#pragma once

/// Extents of a tensor's dims, and index arithmetic on them. Plain values without heap memory: at
/// most kMaxDims dims. Includes only the standard library, so device code may include it. The
/// functions that kernels use are inline, so that kernels need not link anything.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>

namespace tessera {

inline constexpr int kMaxDims = 8;

/// A short list of int64: a shape, or strides in elements.
class Shape {
 public:
  Shape() = default;
  /// Throws InvalidArgument above kMaxDims entries.
  Shape(std::initializer_list<std::int64_t> dims)
      : Shape(std::span<const std::int64_t>(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const std::int64_t> dims) : ndim_(static_cast<int>(dims.size())) {
    if (dims.size() > kMaxDims) throw_too_many(dims.size());
    std::copy(dims.begin(), dims.end(), dims_.begin());
  }
  /// `ndim` entries of `value`.
  static Shape filled(int ndim, std::int64_t value);

  int ndim() const { return ndim_; }
  std::int64_t operator[](int dim) const { return dims_[static_cast<std::size_t>(dim)]; }
  std::int64_t& operator[](int dim) { return dims_[static_cast<std::size_t>(dim)]; }
  const std::int64_t* begin() const { return dims_.data(); }
  const std::int64_t* end() const { return dims_.data() + ndim_; }
  std::int64_t back() const { return dims_[static_cast<std::size_t>(ndim_ - 1)]; }

  /// Product of all entries; 1 for no dims.
  std::int64_t numel() const {
    std::int64_t product = 1;
    for (std::int64_t entry : *this) product *= entry;
    return product;
  }
  /// Throws InvalidArgument above kMaxDims entries.
  void push_back(std::int64_t value);
  /// Copies with one entry replaced, removed or inserted.
  Shape with(int dim, std::int64_t value) const;
  Shape without(int dim) const;
  Shape inserted(int dim, std::int64_t value) const;

  bool operator==(const Shape& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }
  /// "[2, 3]".
  std::string str() const;

 private:
  [[noreturn]] static void throw_too_many(std::size_t dims);

  std::array<std::int64_t, kMaxDims> dims_{};
  int ndim_ = 0;
};

/// Prints str().
template <class Char, class Traits>
std::basic_ostream<Char, Traits>& operator<<(std::basic_ostream<Char, Traits>& out,
                                             const Shape& shape) {
  return out << shape.str();
}

/// Row-major strides in elements.
inline Shape contiguous_strides(const Shape& shape) {
  Shape strides = shape;
  std::int64_t step = 1;
  for (int dim = shape.ndim() - 1; dim >= 0; --dim) {
    strides[dim] = step;
    step *= shape[dim];
  }
  return strides;
}
/// True if `strides` walk `shape` in row-major order without gaps. Dims of extent 1 are ignored;
/// empty tensors are contiguous.
inline bool is_contiguous(const Shape& shape, const Shape& strides) {
  std::int64_t step = 1;
  bool in_order = true;
  for (int dim = shape.ndim() - 1; dim >= 0; --dim) {
    if (shape[dim] == 0) return true;
    in_order = in_order && (shape[dim] == 1 || strides[dim] == step);
    step *= shape[dim];
  }
  return in_order;
}
/// The common shape of a and b under NumPy's broadcasting rules. Throws InvalidArgument tagged
/// `where` if there is none.
Shape broadcast_shapes(const Shape& a, const Shape& b, const char* where);
/// `dim` counted from the front; negative dims count from the back. Throws InvalidArgument tagged
/// `where` outside [-ndim, ndim).
int normalize_dim(int dim, int ndim, const char* where);
/// `shape` with its -1, if it has one, replaced so that the number of elements is that of `from`.
/// Throws InvalidArgument tagged `where` if that is impossible.
Shape resolve_view_shape(const Shape& shape, const Shape& from, const char* where);

}  // namespace tessera
