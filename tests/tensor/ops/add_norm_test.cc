// Norms of a sum with a residual, in one kernel.
#include <catch2/catch.hpp>

#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/norm.h"
#include "tessera/tests/tensor/ops/nn_support.h"

namespace tessera {

using namespace testing;

// One kernel with the bits of two.
TEST_CASE("norms of sums: the bits of an addition and then a norm, in every dtype and layout") {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    const Tensor w = cast(spread_tensor<double>({33}, 0.5, 2), dtype),
                 b = cast(spread_tensor<double>({33}), dtype),
                 x = cast(spread_tensor<double>({5, 4, 33}, -1, 3), dtype),
                 r = cast(spread_tensor<double>({4, 5, 33}).transpose(0, 1), dtype);
    const Tensor sum = add(x, r);
    const AddNormResult layer = add_layer_norm_forward(x, r, w, b, {.eps = 0.1});
    const NormResult plain_layer = layer_norm_forward(sum, w, b, {.eps = 0.1});
    CHECK(all_equal(layer.sum, sum));
    CHECK(all_equal(layer.y, plain_layer.y));
    CHECK(all_equal(layer.statistics.mean, plain_layer.statistics.mean));
    CHECK(all_equal(layer.statistics.rstd, plain_layer.statistics.rstd));
    const AddNormResult rms = add_rms_norm_forward(x, r, Tensor(), {.dims = 2});
    const NormResult plain_rms = rms_norm_forward(sum, Tensor(), {.dims = 2});
    CHECK(all_equal(rms.sum, sum));
    CHECK(all_equal(rms.y, plain_rms.y));
    CHECK(all_equal(rms.statistics.rstd, plain_rms.statistics.rstd));
    CHECK_FALSE(rms.statistics.mean.defined());
  }
  CHECK(add_rms_norm_forward(zeros({0, 4}), zeros({0, 4}), Tensor()).sum.shape() == Shape{0, 4});
}

}  // namespace tessera
