#pragma once

/// Element types. Header only and free of fmt, so device code may include it.

#include <cstddef>
#include <cstdint>

namespace tessera {

enum class DType : std::uint8_t {
  kF32,
  kF64,
  kI64,
  kU8,
};

/// Bytes of one element.
constexpr std::size_t dtype_size(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 4;
    case DType::kF64:
      return 8;
    case DType::kI64:
      return 8;
    case DType::kU8:
      return 1;
  }
  return 0;
}

/// "f32", "f64", "i64", "u8".
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
  }
  return "?";
}

constexpr bool is_floating(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF64; }

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

/// Throws InvalidArgument: `[where] dtype D is not supported here`. Defined in dtype.cc.
[[noreturn]] void throw_unsupported_dtype(DType dtype, const char* where);

/// Calls `body.template operator()<T>()` with the C++ type of a floating `dtype`; throws
/// InvalidArgument for the others.
template <class Body>
decltype(auto) dispatch_floating(DType dtype, const char* where, Body&& body) {
  switch (dtype) {
    case DType::kF32:
      return body.template operator()<float>();
    case DType::kF64:
      return body.template operator()<double>();
    case DType::kI64:
    case DType::kU8:
      break;
  }
  throw_unsupported_dtype(dtype, where);
}

/// The same for every dtype.
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
  }
  throw_unsupported_dtype(dtype, where);
}

}  // namespace tessera
