#include "tessera/tensor/ops/elementwise.h"

auto same(const tessera::Tensor& a, const tessera::Tensor& b) { return a == b; }
