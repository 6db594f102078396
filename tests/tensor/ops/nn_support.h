#pragma once

// Shared by the tests of neural-network operations.

#include <catch2/catch.hpp>

#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/tensor/ops/ops_support.h"

namespace tessera::testing {

inline constexpr DType kFloatingDTypes[] = {DType::kF64, DType::kF32, DType::kBF16, DType::kF16};

// op(x) in every floating dtype and layout equals op in f64 of the same numbers, rounded; and has
// the same bits for every layout.
template <class Op>
void check_dtypes(const Tensor& x, const Op& op) {
  for (DType dtype : kFloatingDTypes) {
    INFO("dtype " << dtype_name(dtype));
    const Tensor narrow = cast(x, dtype);
    const Tensor exact = op(cast(narrow, DType::kF64)), plain = op(narrow);
    CHECK(all_close(plain, cast(exact, plain.dtype())));
    for (const Tensor& layout : layouts(narrow)) CHECK(all_equal(op(layout), plain));
  }
}

}  // namespace tessera::testing
