#pragma once

/// How values of several ranks become one. Header only but for name().

#include <cstdint>
#include <string>

namespace tessera::distributed {

/// Computed in rank order; 16-bit floats in f32, rounded once at the end.
struct ReduceOp {
  enum class Kind : std::uint8_t {
    kSum,        ///< of kU8: modulo 256; of kBool: or
    kAverage,    ///< the sum divided by the number of ranks; floating dtypes
    kMin,        ///< a NaN wins; of kBool: and
    kMax,        ///< a NaN wins; of kBool: or
    kProduct,    ///< of kU8: modulo 256; of kBool: and
    kPremulSum,  ///< sum of factor * value; floating dtypes
  };
  Kind kind = Kind::kSum;
  double factor = 1;  ///< kPremulSum's, equal on all ranks

  static const ReduceOp kSum, kAverage, kMin, kMax, kProduct;
  static constexpr ReduceOp premul_sum(double factor) { return {Kind::kPremulSum, factor}; }

  /// "sum", "premul_sum(0.25)".
  std::string name() const;
  /// kAverage and kPremulSum make fractions.
  bool needs_floating() const { return kind == Kind::kAverage || kind == Kind::kPremulSum; }
  bool operator==(const ReduceOp&) const = default;
};

inline constexpr ReduceOp ReduceOp::kSum{Kind::kSum, 1};
inline constexpr ReduceOp ReduceOp::kAverage{Kind::kAverage, 1};
inline constexpr ReduceOp ReduceOp::kMin{Kind::kMin, 1};
inline constexpr ReduceOp ReduceOp::kMax{Kind::kMax, 1};
inline constexpr ReduceOp ReduceOp::kProduct{Kind::kProduct, 1};

}  // namespace tessera::distributed
