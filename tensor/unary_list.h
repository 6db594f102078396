#pragma once

/// The list of the functions of one number, such as exp and gelu. To add one, add
///   - a row here;
///   - its computation, a functor in tensor/kernels/math/functors.h;
///   - its derivative in autograd/ops/unary.cc;
///   - its declarations in tensor/ops/elementwise.h and autograd/ops/elementwise.h.
/// UnaryOp, the kernels' table of functors and the definitions for Tensor and Variable are made from the list.
///
/// A row is ROW(function, Functor, result, in_place):
///   function  the name of the operation; errors and traces show it
///   Functor   names functors::Functor and UnaryOp::kFunctor
///   result    how the result's dtype follows from x's: a ResultKind of tensor/ops/internal/elementwise_launch.h
///   in_place  IN_PLACE: there is a `function_` too, which writes to x; VALUE_ONLY: there is none

#define TESSERA_UNARY_FUNCTIONS(ROW)               \
  ROW(neg, Neg, kPromoted, IN_PLACE)               \
  ROW(abs, Abs, kPromoted, IN_PLACE)               \
  ROW(sign, Sign, kPromoted, VALUE_ONLY)           \
  ROW(square, Square, kNumber, IN_PLACE)           \
  ROW(reciprocal, Reciprocal, kFloating, IN_PLACE) \
  ROW(exp, Exp, kFloating, IN_PLACE)               \
  ROW(exp2, Exp2, kFloating, IN_PLACE)             \
  ROW(expm1, Expm1, kFloating, VALUE_ONLY)         \
  ROW(log, Log, kFloating, IN_PLACE)               \
  ROW(log2, Log2, kFloating, IN_PLACE)             \
  ROW(log10, Log10, kFloating, IN_PLACE)           \
  ROW(log1p, Log1p, kFloating, VALUE_ONLY)         \
  ROW(sqrt, Sqrt, kFloating, IN_PLACE)             \
  ROW(rsqrt, Rsqrt, kFloating, IN_PLACE)           \
  ROW(sin, Sin, kFloating, VALUE_ONLY)             \
  ROW(cos, Cos, kFloating, VALUE_ONLY)             \
  ROW(tan, Tan, kFloating, VALUE_ONLY)             \
  ROW(asin, Asin, kFloating, VALUE_ONLY)           \
  ROW(acos, Acos, kFloating, VALUE_ONLY)           \
  ROW(atan, Atan, kFloating, VALUE_ONLY)           \
  ROW(sinh, Sinh, kFloating, VALUE_ONLY)           \
  ROW(cosh, Cosh, kFloating, VALUE_ONLY)           \
  ROW(tanh, Tanh, kFloating, IN_PLACE)             \
  ROW(asinh, Asinh, kFloating, VALUE_ONLY)         \
  ROW(acosh, Acosh, kFloating, VALUE_ONLY)         \
  ROW(atanh, Atanh, kFloating, VALUE_ONLY)         \
  ROW(sinc, Sinc, kFloating, VALUE_ONLY)           \
  ROW(erf, Erf, kFloating, VALUE_ONLY)             \
  ROW(erfc, Erfc, kFloating, VALUE_ONLY)           \
  ROW(erfinv, Erfinv, kFloating, IN_PLACE)         \
  ROW(lgamma, Lgamma, kFloating, VALUE_ONLY)       \
  ROW(digamma, Digamma, kFloating, VALUE_ONLY)     \
  ROW(sigmoid, Sigmoid, kFloating, IN_PLACE)       \
  ROW(relu, Relu, kPromoted, IN_PLACE)             \
  ROW(gelu, Gelu, kFloating, VALUE_ONLY)           \
  ROW(gelu_tanh, GeluTanh, kFloating, VALUE_ONLY)  \
  ROW(silu, Silu, kFloating, VALUE_ONLY)           \
  ROW(softplus, Softplus, kFloating, VALUE_ONLY)   \
  ROW(floor, Floor, kPromoted, VALUE_ONLY)         \
  ROW(ceil, Ceil, kPromoted, VALUE_ONLY)           \
  ROW(round, Round, kPromoted, VALUE_ONLY)         \
  ROW(trunc, Trunc, kPromoted, VALUE_ONLY)         \
  ROW(frac, Frac, kPromoted, IN_PLACE)

/// Of integers and bool only; they have no derivative.
#define TESSERA_UNARY_BITWISE(ROW) ROW(bitwise_not, BitwiseNot, kPromoted, IN_PLACE)

/// Functions to bool, which have no derivative.
#define TESSERA_UNARY_PREDICATES(ROW)        \
  ROW(isnan, IsNan, kBool, VALUE_ONLY)       \
  ROW(isinf, IsInf, kBool, VALUE_ONLY)       \
  ROW(isfinite, IsFinite, kBool, VALUE_ONLY) \
  ROW(signbit, SignBit, kBool, VALUE_ONLY)   \
  ROW(logical_not, LogicalNot, kBool, VALUE_ONLY)
