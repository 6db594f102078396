#pragma once

/// From elementwise operations to their kernels: checks, promotion, broadcasting and layout.
/// Private to this folder. `where` is the operation as the user calls it.

#include <optional>

#include "tessera/tensor/kernels/math/functors_binary.h"
#include "tessera/tensor/kernels/math/functors_ternary.h"
#include "tessera/tensor/ops/promotion.h"
#include "tessera/tensor/tensor.h"

namespace tessera::ops {

/// What a result's dtype follows from that of the operands.
enum class ResultKind : std::uint8_t {
  kPromoted,  ///< their common dtype
  kNumber,    ///< the same, and i64 where that is bool
  kFloating,  ///< the same, and f32 where that is no floating dtype
  kBool,
};

/// A new tensor, or `out` where one is given: then the result must fit its shape, and its kind must
/// not lie above that of out's dtype. `out` may be an operand; operands that overlap it otherwise
/// are copied first.
Tensor unary(const char* where, const Tensor& x, UnaryOp op, ResultKind kind,
             const Tensor* out = nullptr);
Tensor binary(const char* where, const TensorOrNumber& a, const TensorOrNumber& b, BinaryOp op,
              ResultKind kind, const Tensor* out = nullptr);

struct TernaryOperands {
  TensorOrNumber a;
  TensorOrNumber b;
  TensorOrNumber c;
};
/// The result's dtype is promoted from all three, or from the last two where `a` is a condition.
Tensor ternary(const char* where, const TernaryOperands& operands, TernaryOp op,
               const Tensor* out = nullptr, double factor = 1);

/// Throws InvalidArgument when several elements of `out` lie in one place.
void check_writable(const char* where, const Tensor& out);

}  // namespace tessera::ops
