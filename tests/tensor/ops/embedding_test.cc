// Masks, one-hot rows and embeddings against index arithmetic.
#include <catch2/catch.hpp>
#include <vector>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/index.h"
#include "tessera/tensor/ops/mask.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/naive.h"
#include "tessera/tests/tensor/ops/ops_support.h"

namespace tessera {
namespace {

using namespace testing;
using naive::Array;
using naive::Index;

Tensor numbers(const Shape& shape, DType dtype) {
  return cast(spread_tensor<double>(shape, -9, 9), dtype);
}

// Indices in [0, extent), with repetitions.
Tensor indices(const Shape& shape, std::int64_t extent, DType dtype = DType::kI64) {
  return cast(spread_tensor<double>(shape, 0, static_cast<double>(extent)), dtype);
}

TEST_CASE("masked_fill: every dtype, layout and kind of mask") {
  for (DType dtype : kAllDTypes) {
    const Tensor x = numbers({3, 5, 4}, dtype);
    const Array plain = naive::array_of(x);
    for (DType mask_dtype : {DType::kBool, DType::kU8}) {
      for (const Shape& shape : {Shape{3, 5, 4}, Shape{5, 1}, Shape{}}) {
        const Tensor mask = cast(indices(shape, 2), mask_dtype);
        const Array set = naive::array_of(contiguous(mask.expand({3, 5, 4})));
        Array expected = plain;
        for (std::size_t i = 0; i < plain.values.size(); ++i)
          expected.values[i] = set.values[i] != 0 ? 1 : plain.values[i];
        for (const Tensor& layout : layouts(x)) {
          CHECK(naive::is_equal(masked_fill(layout, mask, 1), expected));
          CHECK(naive::is_equal(layout, plain));
          masked_fill_(layout, mask, 1);
          CHECK(naive::is_equal(layout, expected));
          copy_(layout, naive::tensor_of(plain, dtype));
        }
      }
    }
  }
  CHECK(masked_fill(zeros({0, 2}), zeros({2}, {.dtype = DType::kBool}), 1).numel() == 0);
  const float low = -std::numeric_limits<float>::infinity();
  CHECK(masked_fill(zeros({1}), ones({1}, {.dtype = DType::kBool}), low).item<float>() == low);
}

TEST_CASE("one_hot") {
  const Tensor at = Tensor::from_vector<std::int64_t>({2, 0, 1, 1}, {2, 2});
  CHECK(one_hot(at, 3).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0});
  CHECK(one_hot(at, 3, DType::kF16).dtype() == DType::kF16);
  CHECK(one_hot(at.select(0, 0).select(0, 0), 4).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{0, 0, 1, 0});
  CHECK(one_hot(indices({0}, 1), 3).shape() == Shape{0, 3});
  CHECK_THAT(thrown_by_kernel<InvalidArgument>([&] { one_hot(at, 2); }),
             Catch::Contains("[one_hot] index 2 at position 0 is outside [0, 2)"));
  CHECK(thrown<InvalidArgument>([&] { one_hot(at, 0); }) ==
        "[one_hot] the number of classes is 0; it must be at least 1");
}

TEST_CASE("embedding: rows, and their gradients summed in order") {
  for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    const Tensor weight = numbers({7, 5}, dtype);
    for (const Shape& shape : {Shape{}, Shape{4}, Shape{3, 6}, Shape{0}, Shape{2, 0}}) {
      const Tensor at = indices(shape, 7, DType::kI32);
      Shape out = shape;
      out.push_back(5);
      const Array table = naive::array_of(weight), places = naive::array_of(at);
      const auto row = [&](Index index) {
        const std::int64_t feature = index.back();
        index.pop_back();
        return Index{static_cast<std::int64_t>(places.at(index)), feature};
      };
      CHECK(naive::is_equal(embedding(weight, at),
                            naive::pick(table, Index(out.begin(), out.end()), row)));
      const Tensor dy = numbers(out, dtype);
      const Array gradient = naive::array_of(dy);
      for (std::int64_t padding : {-1, 2}) {
        for (double beta : {0.0, 1.0, 0.5}) {
          const Tensor dweight = numbers({7, 5}, dtype);
          Array expected = naive::array_of(dweight);
          for (double& value : expected.values) value *= beta;
          naive::for_each_index(gradient.shape, [&](const Index& index) {
            if (row(index)[0] != padding) expected.at(row(index)) += gradient.at(index);
          });
          embedding_backward_into(dweight, dy, at, {.beta = beta, .padding_index = padding});
          CHECK(naive::is_close(dweight, expected, default_tolerance(dtype).rtol, 1e-2));
        }
      }
    }
  }
  // 16-bit gradients into an f32 slot are not rounded.
  const Tensor slot = Tensor::empty({1, 1});
  embedding_backward_into(slot, ones({1001, 1}, {.dtype = DType::kBF16}),
                          zeros({1001}, {.dtype = DType::kI64}));
  CHECK(slot.item<float>() == 1001);
}

TEST_CASE("embedding: threads share the entries of a large gradient") {
  if (!default_device().is_cpu()) return;  // large, and about the threads of the CPU
  struct Sizes {
    std::int64_t entries, features, tokens;
  };
  for (const Sizes& n : {Sizes{37, 130, 1100}, Sizes{3, 5001, 50}, Sizes{1, 70, 1000}}) {
    const Tensor at = indices({n.tokens}, n.entries),
                 dy = numbers({n.tokens, n.features}, DType::kF32);
    const auto places = at.to_vector<std::int64_t>();
    const auto gradients = dy.to_vector<float>();
    const std::int64_t padding = n.entries / 2;
    std::vector<float> expected(static_cast<std::size_t>(n.entries * n.features), 0);
    for (std::size_t token = 0, i = 0; token < places.size(); ++token) {
      for (std::int64_t feature = 0; feature < n.features; ++feature, ++i) {
        if (places[token] != padding)
          expected[static_cast<std::size_t>(places[token] * n.features + feature)] += gradients[i];
      }
    }
    CHECK(same_for_any_threads([&] {
      const Tensor dweight = ones({n.entries, n.features});
      embedding_backward_into(dweight, dy, at, {.padding_index = padding});
      return dweight.to_vector<float>();
    }));
    const Tensor dweight = ones({n.entries, n.features});
    embedding_backward_into(dweight, dy, at, {.padding_index = padding});
    CHECK(naive::is_close(dweight, {{n.entries, n.features}, {expected.begin(), expected.end()}},
                          1e-6, 1e-3));
  }
}

TEST_CASE("masks and embeddings: errors") {
  const auto text = [](auto body) { return thrown<InvalidArgument>(body); };
  const Tensor x = zeros({2, 3}), at = zeros({2, 3}, {.dtype = DType::kI64});
  const Tensor flags = zeros({2, 3}, {.dtype = DType::kBool});
  const Tensor repeats = zeros({1, 3}).expand({2, 3});
  CHECK_THAT(text([&] { masked_fill_(repeats, flags, 1); }),
             Catch::Contains("[masked_fill_] dim 0 of the tensor written to repeats"));
  CHECK(text([&] { masked_fill(x, x, 1); }) ==
        "[masked_fill] the mask has dtype f32; it must be bool or u8");
  CHECK(text([&] { masked_fill(at, flags, 0.5); }) ==
        "[masked_fill] the number 0.5 is not whole, and the tensor is i64; cast it first");
  CHECK(text([&] { masked_fill_(at, flags, std::numeric_limits<double>::infinity()); }) ==
        "[masked_fill_] the number inf is not whole, and the tensor is i64; cast it first");
  CHECK(text([&] {
          masked_fill_(x, zeros({4, 2, 3}, {.dtype = DType::kBool}), 1);
        }) == "[masked_fill_] the mask has shape [4, 2, 3], which does not broadcast to [2, 3]");
  CHECK_THAT(text([&] { masked_fill(x, Tensor(), 1); }), Catch::Contains("the mask is undefined"));
  CHECK_THAT(text([&] { masked_fill(Tensor(), flags, 1); }), Catch::Contains("is undefined"));
  CHECK(text([&] { embedding(zeros({3}), at); }) ==
        "[embedding] needs a weight [entries, features], got [3]");
  CHECK(text([&] { embedding_backward_into(x, x, at); }) ==
        "[embedding_backward_into] dy has shape [2, 3], expected [2, 3, 3]");
}

}  // namespace
}  // namespace tessera
