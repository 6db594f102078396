#pragma once

// A row of the table of operations: how to call one, and which operands it must reject.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/tensor/tensor.h"

namespace tessera::testing {

// A shape that the operation must reject, and the text of the message; empty: the shape itself.
struct WrongShape {
  Shape shape;
  std::string says = {};
};

// A tensor operand of an operation.
struct Operand {
  Shape shape;
  DType dtype = DType::kF32;
  bool optional = false;  // may be undefined
  std::vector<DType> wrong_dtypes = {};
  std::vector<WrongShape> wrong_shapes = {};

  Operand not_of(std::vector<DType> dtypes) const {
    Operand out = *this;
    out.wrong_dtypes = std::move(dtypes);
    return out;
  }
  Operand not_shaped(const Shape& wrong, std::string says = {}) const {
    Operand out = *this;
    out.wrong_shapes.push_back({wrong, std::move(says)});
    return out;
  }
  Operand in(DType other) const {
    Operand out = *this;
    out.dtype = other;
    return out;
  }
  Operand or_undefined() const {
    Operand out = *this;
    out.optional = true;
    return out;
  }
};

// f32; any other dtype is accepted, or promotes.
inline Operand any(const Shape& shape) { return {.shape = shape}; }
// f32; integers are rejected.
inline Operand floating(const Shape& shape) { return any(shape).not_of({DType::kI64}); }
// f32; any other dtype is rejected, because it differs from the other operands'.
inline Operand matching(const Shape& shape) {
  return any(shape).not_of({DType::kI64, DType::kF64});
}
// f32; must have the dtype of the other operands, which may be any.
inline Operand same(const Shape& shape) { return any(shape).not_of({DType::kF64}); }
// For calls along dim 1.
inline const std::string kNoDim1 = "dim 1 does not exist in a tensor of 1 dims";
inline Operand with_dim_1(const Operand& x) { return x.not_shaped({5}, kNoDim1); }
// Positions: i64, or i32.
inline Operand positions(const Shape& shape) {
  return Operand{.shape = shape, .dtype = DType::kI64}.not_of({DType::kF32, DType::kU8});
}

// The tensors of one call, and the device of results without operands.
struct Call {
  std::vector<Tensor> tensors;
  Device device;

  const Tensor& operator[](std::size_t i) const { return tensors[i]; }
  TensorOptions options(DType dtype = DType::kF32) const {
    return {.dtype = dtype, .device = device};
  }
};

struct Operation {
  std::string name;  // as declared, and as its errors are tagged
  std::vector<Operand> operands;
  std::function<void(const Call&)> call;
  std::string tag = {};  // of errors, if not the name: for the parts of one operation, which report
                         // its name
  bool values_decide = false;  // the result's size: the null device, without values, throws
};
using Operations = std::vector<Operation>;

// The rows, by the header that declares the operations. operation_table_test.py compares them with
// the headers: a row begins with `{"name", ...` and calls `name`.
Operations elementwise_operations();
Operations in_place_operations();
Operations unary_operations();
Operations create_operations();
Operations random_operations();
Operations reduce_operations();
Operations shape_operations();
Operations index_operations();
Operations scatter_operations();
Operations mask_operations();
Operations rearrange_operations();
Operations stacking_operations();
Operations splitting_operations();
Operations matmul_operations();
Operations product_operations();
Operations nn_operations();
Operations activation_operations();
Operations norm_operations();
Operations optim_operations();
Operations attention_operations();
Operations window_operations();

Operations every_operation();

}  // namespace tessera::testing
