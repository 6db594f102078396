// RotaryEmbedding: values against the formula, positions, dtypes, gradients, errors.
#include "tessera/nn/layers/transformer/rotary_embedding.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "tessera/autograd/grad_check.h"
#include "tessera/tests/nn/layers/formulas.h"
#include "tessera/tests/nn/support.h"

namespace tessera::testing {
namespace {

// x [batch, positions, heads, features] by the formula, pair by pair.
std::vector<double> turned(const Tensor& x, const nn::RotaryEmbeddingOptions& options,
                           std::int64_t position) {
  const std::int64_t length = x.dim(1), heads = x.dim(2), features = x.dim(3);
  const std::vector<double> in = values(x);
  std::vector<double> out = in;
  for (std::int64_t row = 0; row < x.dim(0) * length * heads; ++row) {
    const std::int64_t at = options.offset + position + row / heads % length;
    for (std::int64_t pair = 0; pair < options.dim / 2; ++pair) {
      const bool halves = options.pairing == RotaryPairing::kHalves;
      const std::int64_t first = row * features + (halves ? pair : 2 * pair);
      const auto a = static_cast<std::size_t>(first);
      const auto b = static_cast<std::size_t>(first + (halves ? options.dim / 2 : 1));
      const double angle =
          static_cast<double>(at) * std::pow(options.base, -2.0 * static_cast<double>(pair) /
                                                               static_cast<double>(options.dim));
      out[a] = in[a] * std::cos(angle) - in[b] * std::sin(angle);
      out[b] = in[b] * std::cos(angle) + in[a] * std::sin(angle);
    }
  }
  return out;
}

TEST_CASE("rotary embedding turns pairs of features by their positions") {
  for (const RotaryPairing pairing : {RotaryPairing::kHalves, RotaryPairing::kNeighbours}) {
    for (const std::int64_t position : {0, 3}) {
      const nn::RotaryEmbeddingOptions options{
          .dim = 6, .max_length = 8, .base = 100, .offset = 2, .pairing = pairing};
      nn::RotaryEmbedding rotary(options);
      CHECK(rotary.dim() == 6);
      CHECK(rotary.max_length() == 8);
      nn::initialize(rotary);
      const Variable x = wave_input({2, 5, 3, 6}, 0.4);
      check_close(values(rotary(x, position).tensor()), turned(x.tensor(), options, position));
    }
  }
}

TEST_CASE("rotary embedding of fewer features than a head has, of strided and of empty inputs") {
  const nn::RotaryEmbeddingOptions options{.dim = 4, .max_length = 5};
  nn::RotaryEmbedding rotary(options);
  nn::initialize(rotary);
  // The features beyond dim stay: turning the first four of seven.
  const Variable x = wave_input({1, 5, 2, 7}, 0.4);
  check_close(values(rotary(x).tensor()), turned(x.tensor(), options, 0));
  const Variable strided = transpose(wave_input({5, 2, 2, 4}, 0.1), 0, 1);
  check_close(values(rotary(strided).tensor()), turned(contiguous(strided).tensor(), options, 0));
  CHECK(rotary(wave_input({0, 5, 2, 4}, 0)).shape() == Shape{0, 5, 2, 4});
  CHECK(rotary(wave_input({2, 0, 2, 4}, 0), 5).shape() == Shape{2, 0, 2, 4});
}

TEST_CASE("rotary embedding has no state, and its table keeps its precision") {
  const nn::RotaryEmbeddingOptions options{.dim = 4, .max_length = 300};
  nn::RotaryEmbedding rotary(options);
  nn::initialize(rotary);
  CHECK(rotary.parameters().empty());
  REQUIRE(rotary.named_buffers().size() == 2);
  CHECK_FALSE(rotary.get_buffer("cos").is_persistent());
  rotary.to(DType::kBF16);
  CHECK(rotary.get_buffer("sin").dtype() == DType::kF64);
  const Tensor x = waves({1, 300, 1, 4}, 0.2, 1);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const Tensor rounded = cast(x, dtype);
    const Variable y = rotary(Variable(rounded));
    REQUIRE(y.dtype() == dtype);
    const double tolerance = dtype == DType::kF32 ? 1e-6 : dtype == DType::kF16 ? 1e-3 : 5e-3;
    check_close(cast(y.tensor(), DType::kF64).to_vector<double>(),
                turned(cast(rounded, DType::kF64), options, 0), tolerance);
  }
}

TEST_CASE("rotary embedding: the derivative, twice") {
  nn::RotaryEmbedding rotary({.dim = 4, .max_length = 5});
  nn::initialize(rotary);
  const auto function = [&](const std::vector<Variable>& in) { return rotary(in[0], 1); };
  CHECK(grad_check(function, {wave_input({2, 3, 2, 4}, 0.5)}).passed);
  CHECK(grad_grad_check(function, {wave_input({2, 3, 2, 4}, 0.5)}).passed);
}

TEST_CASE("rotary embedding names what does not fit") {
  const auto built = [](const nn::RotaryEmbeddingOptions& options) {
    return thrown<InvalidArgument>([&] { nn::RotaryEmbedding{options}; });
  };
  CHECK(built({.dim = 5, .max_length = 8}) ==
        "[nn.RotaryEmbedding] expected an even dim of at least 2 and max_length of at least 1, got "
        "dim = 5, max_length = 8");
  CHECK(built({.dim = 0, .max_length = 8}).find("got dim = 0") != std::string::npos);
  CHECK(built({.dim = 4}).find("max_length = 0") != std::string::npos);
  CHECK(built({.dim = 4, .max_length = 1, .base = 0}) ==
        "[nn.RotaryEmbedding] expected base above 0 and offset of at least 0, got base = 0, offset "
        "= 0");
  CHECK(built({.dim = 4, .max_length = 1, .offset = -1}).find("offset = -1") != std::string::npos);
  nn::RotaryEmbedding rotary({.dim = 4, .max_length = 5});
  const Variable x = wave_input({1, 3, 2, 4}, 0);
  CHECK(thrown<StateError>([&] { rotary(x); }).find("has no elements yet") != std::string::npos);
  nn::initialize(rotary);
  CHECK(thrown<InvalidArgument>([&] { rotary(x, 3); }) ==
        "[nn.RotaryEmbedding] 3 positions from 3 on do not lie in a table of 5: build the layer "
        "with a larger max_length");
  CHECK(thrown<InvalidArgument>([&] { rotary(x, -1); }).find("from -1 on") != std::string::npos);
  const char* expected = "expected a floating input [..., positions, heads, 4 or more], got ";
  CHECK(thrown<InvalidArgument>([&] {
          rotary(wave_input({3, 2, 3}, 0));
        }) == std::string("[nn.RotaryEmbedding] ") + expected + "f64 [3, 2, 3]");
  CHECK(thrown<InvalidArgument>([&] {
          rotary(wave_input({2, 4}, 0));
        }).find(expected) != std::string::npos);
  CHECK(thrown<InvalidArgument>([&] {
          rotary(Variable(zeros({3, 2, 4}, {.dtype = DType::kI64})));
        }).find("got i64 [3, 2, 4]") != std::string::npos);
}

}  // namespace
}  // namespace tessera::testing
