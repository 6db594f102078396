// In-place operations whose operands share memory with the output: as if the operands were copied
// first.
#include <catch2/catch.hpp>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/index.h"
#include "tessera/tests/support/throws.h"

namespace tessera::testing {
namespace {

std::vector<double> values(const Tensor& x) { return cast(x, DType::kF64).to_vector<double>(); }

TEST_CASE("copy_ and axpby_ of an overlapping operand") {
  for (DType dtype : {DType::kF32, DType::kI64, DType::kBF16}) {
    const Tensor x = arange(8, {.dtype = dtype});
    copy_(x.slice(0, 1, 8), x.slice(0, 0, 7));
    CHECK(values(x) == std::vector<double>{0, 0, 1, 2, 3, 4, 5, 6});
    axpby_(x.slice(0, 1, 8), x.slice(0, 0, 7), {.alpha = 1, .beta = 1});
    CHECK(values(x) == std::vector<double>{0, 0, 1, 3, 5, 7, 9, 11});
    const Tensor square = arange(9, {.dtype = dtype}).view({3, 3});
    copy_(square, square.transpose(0, 1));
    CHECK(values(square) == std::vector<double>{0, 3, 6, 1, 4, 7, 2, 5, 8});
  }
}

TEST_CASE("two operands that overlap the result are two copies") {
  const Tensor x = arange(6, {.dtype = DType::kF32});
  addcmul_(x.slice(0, 1, 5), x.slice(0, 0, 4), x.slice(0, 2, 6));  // y += previous * next
  CHECK(values(x) == std::vector<double>{0, 1, 5, 11, 19, 5});
}

TEST_CASE("masked_fill_, scatter_ and scatter_add_ with operands that they write") {
  const Tensor mask = cast(Tensor::from_vector<float>({1, 0, 0, 0}, {4}), DType::kBool);
  masked_fill_(mask.slice(0, 1, 4), mask.slice(0, 0, 3), 1);
  CHECK(values(mask) == std::vector<double>{1, 1, 0, 0});
  const Tensor next = Tensor::from_vector<std::int64_t>({1, 2, 3, 0}, {4});
  const Tensor x = arange(4, {.dtype = DType::kF32});
  scatter_(x, 0, next, x);
  CHECK(values(x) == std::vector<double>{3, 0, 1, 2});
  scatter_add_(x, 0, next, x);
  CHECK(values(x) == std::vector<double>{5, 3, 1, 3});
  const Tensor own = Tensor::from_vector<std::int64_t>({1, 2, 0}, {3});
  scatter_(own, 0, own, Tensor::from_vector<std::int64_t>({7, 8, 9}, {3}));
  CHECK(values(own) == std::vector<double>{9, 7, 8});
}

TEST_CASE("copy_ and axpby_ do not write a tensor that repeats elements") {
  const Tensor x = zeros({1, 3}).expand({2, 3});
  for (const std::string& text : {thrown<InvalidArgument>([&] {
                                    copy_(x, ones({2, 3}));
                                  }),
                                  thrown<InvalidArgument>([&] {
                                    axpby_(x, ones({2, 3}), {.alpha = 1, .beta = 1});
                                  })}) {
    CHECK(text.substr(text.find(']')) ==
          "] dim 0 of the tensor written to repeats one element 2 times; clone() it first");
  }
}

}  // namespace
}  // namespace tessera::testing
