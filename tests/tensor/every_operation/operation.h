#pragma once

// A row of the table of operations: how to call one, and what it must refuse.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/tensor/tensor.h"

namespace tessera::testing {

// A shape that an operand must not have, and what the message then says; empty: the shape itself.
struct WrongShape {
  Shape shape;
  std::string says = {};
};

// A tensor that an operation takes.
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

// Of f32, and any other dtype would do, or promotes.
inline Operand any(const Shape& shape) { return {.shape = shape}; }
// Of f32; integers are refused.
inline Operand floating(const Shape& shape) { return any(shape).not_of({DType::kI64}); }
// Of f32; any other dtype is refused, so also one that other operands do not have.
inline Operand matching(const Shape& shape) {
  return any(shape).not_of({DType::kI64, DType::kF64});
}
// Of f32 where that is the dtype of other operands, whatever it is.
inline Operand same(const Shape& shape) { return any(shape).not_of({DType::kF64}); }
// Where calls run along dim 1.
inline const std::string kNoDim1 = "dim 1 does not exist in a tensor of 1 dims";
inline Operand with_dim_1(const Operand& x) { return x.not_shaped({5}, kNoDim1); }
// Positions: i64, or i32.
inline Operand positions(const Shape& shape) {
  return Operand{.shape = shape, .dtype = DType::kI64}.not_of({DType::kF32, DType::kU8});
}

// The tensors of one call, and where results without operands are to be made.
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
  std::string tag = {};  // of errors: for the pieces of one operation, which say its name
};
using Operations = std::vector<Operation>;

// The rows, by the header that declares the operations. operation_table_test.py compares them with
// the headers: a row is `{"name", ...` and calls `name`.
Operations elementwise_operations();
Operations in_place_operations();
Operations unary_operations();
Operations create_operations();
Operations random_operations();
Operations reduce_operations();
Operations shape_operations();
Operations index_operations();
Operations matmul_operations();
Operations nn_operations();
Operations norm_operations();
Operations optim_operations();
Operations attention_operations();
Operations window_operations();

Operations every_operation();

}  // namespace tessera::testing
