// In-place operations whose operands share memory with the output: as if the operands were copied
// first.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>

#include "tessera/tensor/element_overlap.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/index.h"
#include "tessera/tensor/ops/mask.h"
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

TEST_CASE("windows that overlap are not written") {
  const std::function<void(const Tensor&)> writes[] = {
      [](const Tensor& x) { add_(x, 1); }, [](const Tensor& x) { fill_(x, 1); },
      [](const Tensor& x) { copy_(x, ones(x.shape())); },
      [](const Tensor& x) { masked_fill_(x, ones(x.shape(), {.dtype = DType::kBool}), 1); }};
  for (const auto& write : writes) {
    const Tensor x = zeros({40000});
    const std::string text = thrown<InvalidArgument>([&] { write(x.unfold(0, 2, 1)); });
    CHECK(text.substr(text.find(']')) ==
          "] elements of the tensor written to, of shape [39999, 2] with strides [1, 1], share "
          "memory; clone() it first");
    CHECK(values(x) == std::vector<double>(40000, 0));
    write(x.unfold(0, 2, 2));
    CHECK(values(x) == std::vector<double>(40000, 1));
  }
}

// The addresses of all elements, compared.
bool meets(const Tensor& x) {
  std::vector<std::int64_t> addresses = {0};
  for (int d = 0; d < x.ndim(); ++d) {
    std::vector<std::int64_t> next;
    for (std::int64_t address : addresses) {
      for (std::int64_t i = 0; i < x.dim(d); ++i) next.push_back(address + i * x.strides()[d]);
    }
    addresses = std::move(next);
  }
  std::sort(addresses.begin(), addresses.end());
  return std::adjacent_find(addresses.begin(), addresses.end()) != addresses.end();
}

TEST_CASE("elements_overlap: views of every kind") {
  const Tensor x = zeros({4, 3, 5});
  std::vector<Tensor> views = {x,
                               x.transpose(0, 2),
                               x.slice(1, 1, 3),
                               x.expand({2, 4, 3, 5}),
                               zeros({4, 1, 5}).expand({4, 3, 5}),
                               zeros({1}).expand({1}),
                               zeros({0, 3}),
                               zeros({1, 0}).expand({7, 0}),
                               zeros({})};
  for (int d = 0; d < 3; ++d) {
    for (int e = 0; e < 3; ++e) {
      if (d == e) continue;
      for (int offset : {-1, 0, 1, 2}) views.push_back(x.diagonal(offset, d, e));
    }
    for (std::int64_t size = 1; size <= x.dim(d); ++size) {
      for (std::int64_t step : {1, 2, 3}) views.push_back(x.unfold(d, size, step));
    }
    views.push_back(x.unfold(d, 2, 1).diagonal(0, d, 3));
  }
  int overlapping = 0;
  for (const Tensor& view : views) {
    INFO(view.shape().str() << " with strides " << view.strides().str());
    CHECK(elements_overlap(view.shape(), view.strides()) == meets(view));
    overlapping += meets(view);
  }
  CHECK(overlapping == 9);  // 2 of expand, 7 of unfold
}

TEST_CASE("diagonals are written") {
  const Tensor x = zeros({3, 3});
  add_(x.diagonal(0, 0, 1), 1);
  CHECK(values(x) == std::vector<double>{1, 0, 0, 0, 1, 0, 0, 0, 1});
}

}  // namespace
}  // namespace tessera::testing
