#pragma once

/// Elementwise operations to kernels: checks, promotion, broadcasting and layout. Private to this
/// folder. `where` is the operation under the name that the user calls.

#include <initializer_list>

#include "tessera/tensor/kernels/math/functors_binary.h"
#include "tessera/tensor/kernels/math/functors_ternary.h"
#include "tessera/tensor/ops/promotion.h"
#include "tessera/tensor/tensor.h"

namespace tessera::ops {

/// How the result's dtype follows from the operands' common dtype.
enum class ResultKind : std::uint8_t {
  kPromoted,  ///< the common dtype
  kNumber,    ///< the same, but i64 for bool
  kFloating,  ///< the same, but f32 for dtypes that are not floating
  kBool,
};

/// Returns a new tensor, or writes to `out` if it is given. Then the result must fit out's shape,
/// and its kind must not be higher than that of out's dtype. `out` may be an operand; operands that
/// overlap it in another way are copied first.
Tensor unary(const char* where, const Tensor& x, UnaryOp op, ResultKind kind,
             const Tensor* out = nullptr);
Tensor binary(const char* where, const TensorOrNumber& a, const TensorOrNumber& b, BinaryOp op,
              ResultKind kind, const Tensor* out = nullptr);

struct TernaryOperands {
  TensorOrNumber a;
  TensorOrNumber b;
  TensorOrNumber c;
};
/// The result's dtype is promoted from all three operands, or from the last two if `a` is a
/// condition.
Tensor ternary(const char* where, const TernaryOperands& operands, TernaryOp op,
               const Tensor* out = nullptr, double factor = 1);

/// Throws InvalidArgument if an operand is undefined, or if their common dtype is floating.
void check_integers(const char* where, std::initializer_list<TensorOrNumber> operands);

/// Throws InvalidArgument if several elements of `out` share an address.
void check_writable(const char* where, const Tensor& out);

}  // namespace tessera::ops
