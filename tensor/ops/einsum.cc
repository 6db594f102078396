#include "tessera/tensor/ops/einsum.h"

#include "tessera/tensor/ops/composed/einsum.h"

namespace tessera {

Tensor einsum(std::string_view equation, const std::vector<Tensor>& operands) {
  return composed::einsum(equation, operands);
}
Tensor tensordot(const Tensor& a, const Tensor& b, int dims) {
  return composed::tensordot(a, b, dims);
}
Tensor tensordot(const Tensor& a, const Tensor& b, const DimList& dims_a, const DimList& dims_b) {
  return composed::tensordot(a, b, dims_a, dims_b);
}
Tensor inner(const Tensor& a, const Tensor& b) { return composed::inner(a, b); }

}  // namespace tessera
