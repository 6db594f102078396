#pragma once

/// Element types. Header only and free of fmt, so device code may include it.

#include <cstddef>
#include <cstdint>
#include <iosfwd>

#include "tessera/tensor/half.h"

namespace tessera {

enum class DType : std::uint8_t {
  kF32,
  kF64,
  kI64,
  kU8,
  kBF16,
  kF16,
  kI32,
  kBool,
};

/// All of them, for tests and tables.
inline constexpr DType kAllDTypes[] = {DType::kF32,  DType::kF64, DType::kI64, DType::kU8,
                                       DType::kBF16, DType::kF16, DType::kI32, DType::kBool};

/// Bytes of one element.
constexpr std::size_t dtype_size(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kU8:
    case DType::kBool:
      return 1;
  }
  return 0;
}

/// "f32", "f64", "i64", "u8", "bf16", "f16", "i32", "bool".
constexpr const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
    case DType::kI64:
      return "i64";
    case DType::kU8:
      return "u8";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kI32:
      return "i32";
    case DType::kBool:
      return "bool";
  }
  return "?";
}

/// Prints dtype_name(). A template, so that device code that includes this needs no stream.
template <class Char, class Traits>
std::basic_ostream<Char, Traits>& operator<<(std::basic_ostream<Char, Traits>& out, DType dtype) {
  return out << dtype_name(dtype);
}

constexpr bool is_floating(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kBF16 ||
         dtype == DType::kF16;
}
/// Floating dtypes of 16 bits: used for storage, computed with in f32.
constexpr bool is_half(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }

/// The dtype that a floating dtype is computed in: f32 for the 16-bit dtypes, else the dtype
/// itself.
constexpr DType compute_dtype(DType dtype) { return is_half(dtype) ? DType::kF32 : dtype; }

/// The dtype of a result from operands of two dtypes: bool < u8 < i32 < i64 < floating; f16 with
/// bf16 is f32. Numbers and 0-d tensors have rules of their own: see result_dtype in
/// ops/promotion.h.
constexpr DType promote(DType a, DType b) {
  if (a == b) return a;
  if (is_floating(a) != is_floating(b)) return is_floating(a) ? a : b;
  if (is_half(a) && is_half(b)) return DType::kF32;
  // From narrow to wide, within one kind.
  constexpr DType kOrder[] = {DType::kBool, DType::kU8,   DType::kI32, DType::kI64,
                              DType::kF16,  DType::kBF16, DType::kF32, DType::kF64};
  DType wide = a;
  for (DType dtype : kOrder) {
    if (dtype == a || dtype == b) wide = dtype;
  }
  return wide;
}

/// The DType of a C++ type: dtype_of<float> == DType::kF32. Other types do not compile.
template <class T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "Tessera has no DType for this C++ type");
  return DType::kF32;
}();
template <>
inline constexpr DType dtype_of<float> = DType::kF32;
template <>
inline constexpr DType dtype_of<double> = DType::kF64;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::kI64;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::kU8;
template <>
inline constexpr DType dtype_of<BFloat16> = DType::kBF16;
template <>
inline constexpr DType dtype_of<Float16> = DType::kF16;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::kI32;
template <>
inline constexpr DType dtype_of<bool> = DType::kBool;

/// Throws InvalidArgument: `[where] dtype D is not supported here`. Defined in dtype.cc.
[[noreturn]] void throw_unsupported_dtype(DType dtype, const char* where);

/// Calls `body.template operator()<T>()` with the C++ type of `dtype`.
template <class Body>
decltype(auto) dispatch_all(DType dtype, const char* where, Body&& body) {
  switch (dtype) {
    case DType::kF32:
      return body.template operator()<float>();
    case DType::kF64:
      return body.template operator()<double>();
    case DType::kI64:
      return body.template operator()<std::int64_t>();
    case DType::kU8:
      return body.template operator()<std::uint8_t>();
    case DType::kBF16:
      return body.template operator()<BFloat16>();
    case DType::kF16:
      return body.template operator()<Float16>();
    case DType::kI32:
      return body.template operator()<std::int32_t>();
    case DType::kBool:
      return body.template operator()<bool>();
  }
  throw_unsupported_dtype(dtype, where);
}

/// The same for the floating dtypes; throws InvalidArgument for other dtypes.
template <class Body>
decltype(auto) dispatch_floating(DType dtype, const char* where, Body&& body) {
  switch (dtype) {
    case DType::kF32:
      return body.template operator()<float>();
    case DType::kF64:
      return body.template operator()<double>();
    case DType::kBF16:
      return body.template operator()<BFloat16>();
    case DType::kF16:
      return body.template operator()<Float16>();
    case DType::kI64:
    case DType::kU8:
    case DType::kI32:
    case DType::kBool:
      break;
  }
  throw_unsupported_dtype(dtype, where);
}

}  // namespace tessera
