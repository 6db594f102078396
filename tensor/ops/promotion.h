#pragma once

/// The dtype of the result of an elementwise operation.
///
/// As in PyTorch, operands fall into three classes: tensors with dims, 0-d tensors, numbers. Within
/// a class dtypes promote pairwise (promote() in dtype.h: bool < u8 < i32 < i64 < floating; bf16
/// with f16 is f32). A lower class changes the dtype of a higher one only if it is of a higher kind
/// (bool < integer < floating): an f32 tensor times an f64 number stays f32, and an i64 tensor plus
/// 0.5 becomes f32. Floating-point numbers count as f32, integers as i64.

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "tessera/tensor/tensor.h"

namespace tessera {

/// A tensor or a number. For parameters only, because it refers to the tensor.
class TensorOrNumber {
 public:
  TensorOrNumber(const Tensor& tensor) : tensor_(&tensor) {}  // NOLINT: implicit on purpose
  template <class T>
  requires std::is_arithmetic_v<T> TensorOrNumber(T number)  // NOLINT: implicit on purpose
      : number_(static_cast<double>(number)),
        number_dtype_(std::same_as<T, bool> ? DType::kBool
                      : std::integral<T>    ? DType::kI64
                                            : DType::kF32) {}

  bool is_tensor() const { return tensor_ != nullptr; }
  const Tensor& tensor() const { return *tensor_; }
  double number() const { return number_; }
  /// The dtype of the tensor, or the one that the number counts as.
  DType dtype() const { return tensor_ != nullptr ? tensor_->dtype() : number_dtype_; }

 private:
  const Tensor* tensor_ = nullptr;
  double number_ = 0;
  DType number_dtype_ = DType::kF32;
};

/// The common dtype of the operands, as above.
DType result_dtype(std::initializer_list<TensorOrNumber> operands);

}  // namespace tessera
