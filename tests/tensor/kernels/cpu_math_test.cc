// The CPU's shortcuts have the bits of the long way: functions of 16-bit elements that are looked up, functions of
// vectors side by side, copies that convert nothing.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "tessera/tensor/half.h"
#include "tessera/tensor/kernels/math/functors_binary.h"
#include "tessera/tensor/ops/ops.h"

namespace tessera {
namespace {

// A tensor of 16-bit elements with these bits.
Tensor of_bits(const std::vector<std::uint16_t>& bits, DType dtype) {
  return Tensor::from_host(bits.data(), bits.size(), dtype,
                           {static_cast<std::int64_t>(bits.size())}, kCpu);
}

std::vector<std::uint16_t> bits_of(const Tensor& x) {
  const Tensor dense = x.is_contiguous() ? x : clone(x);
  const auto* data = static_cast<const std::uint16_t*>(dense.storage().data()) + dense.offset();
  return {data, data + dense.numel()};
}

std::vector<std::uint16_t> all_bits() {
  std::vector<std::uint16_t> bits(1 << 16);
  std::iota(bits.begin(), bits.end(), std::uint16_t{0});
  return bits;
}

// "at 3: 1 is not 2", or nothing: the lists are too long to be printed.
std::string difference(const std::vector<std::uint16_t>& a, const std::vector<std::uint16_t>& b) {
  if (a.size() != b.size()) return fmt::format("{} elements are not {}", a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i]) return fmt::format("at {}: {:#06x} is not {:#06x}", i, a[i], b[i]);
  return {};
}

// Every NaN as one: which of its operands an operation passes on is the compiler's choice.
std::vector<std::uint16_t> one_nan(std::vector<std::uint16_t> bits, DType dtype) {
  const std::uint16_t infinity = dtype == DType::kBF16 ? 0x7f80 : 0x7c00;
  for (std::uint16_t& each : bits)
    if ((each & 0x7fff) > infinity) each = 0x7fff;
  return bits;
}

// The function of parts that are too small to be looked up.
template <class F>
std::vector<std::uint16_t> in_parts(const Tensor& x, const F& f) {
  std::vector<std::uint16_t> out;
  for (const Tensor& part : split(x, 4096, 0)) {
    const std::vector<std::uint16_t> bits = bits_of(f(part));
    out.insert(out.end(), bits.begin(), bits.end());
  }
  return out;
}

struct Named {
  std::string name;
  Tensor (*function)(const Tensor&);
};

const std::vector<Named>& looked_up() {
#define TESSERA_ROW(function)                              \
  {                                                        \
#function, [](const Tensor& x) { return function(x); } \
  }
  static const std::vector<Named> all = {
      TESSERA_ROW(exp2),    TESSERA_ROW(expm1), TESSERA_ROW(log),       TESSERA_ROW(log2),
      TESSERA_ROW(log10),   TESSERA_ROW(log1p), TESSERA_ROW(sin),       TESSERA_ROW(cos),
      TESSERA_ROW(tan),     TESSERA_ROW(asin),  TESSERA_ROW(acos),      TESSERA_ROW(atan),
      TESSERA_ROW(sinh),    TESSERA_ROW(cosh),  TESSERA_ROW(tanh),      TESSERA_ROW(asinh),
      TESSERA_ROW(acosh),   TESSERA_ROW(atanh), TESSERA_ROW(sinc),      TESSERA_ROW(sigmoid),
      TESSERA_ROW(erf),     TESSERA_ROW(erfc),  TESSERA_ROW(erfinv),    TESSERA_ROW(lgamma),
      TESSERA_ROW(digamma), TESSERA_ROW(gelu),  TESSERA_ROW(gelu_tanh), TESSERA_ROW(silu),
      TESSERA_ROW(softplus)};
#undef TESSERA_ROW
  return all;
}

TEST_CASE("functions of 16-bit elements that are looked up have the bits of computed ones") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF16);
  const Tensor x = of_bits(all_bits(), dtype);
  for (const auto& [name, function] : looked_up()) {
    INFO(name);
    CHECK(difference(one_nan(bits_of(function(x)), dtype), one_nan(in_parts(x, function), dtype)) ==
          "");
  }
}

TEST_CASE("elements that are looked up may have any layout") {
  std::vector<std::uint16_t> bits = all_bits();
  std::reverse(bits.begin(), bits.end());
  const Tensor x = of_bits(bits, DType::kBF16);
  const Tensor turned = transpose(x.view({128, 512}), 0, 1), thin = x.slice(0, 1, 1 << 16, 3);
  for (const Tensor& view : {turned, thin, x.slice(0, 7, 50000).view({1, 49993}).expand({3, -1})})
    CHECK(difference(bits_of(gelu(view)), bits_of(gelu(clone(view)))) == "");
  const Tensor in_place = clone(x);
  tanh_(transpose(in_place.view({128, 512}), 0, 1));
  CHECK(difference(bits_of(in_place), bits_of(tanh(x))) == "");
}

TEST_CASE("derivatives with slopes that are looked up have the bits of computed ones") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF16);
  const Tensor x = of_bits(all_bits(), dtype);
  std::vector<std::uint16_t> other = all_bits();
  for (std::size_t i = 0; i < other.size(); ++i) other[i] = static_cast<std::uint16_t>(i * 40503);
  const Tensor dy = of_bits(other, dtype);
  using Backward = Tensor (*)(const Tensor&, const Tensor&);
  for (const Backward backward : {Backward(gelu_backward), Backward(gelu_tanh_backward),
                                  Backward(silu_backward), Backward(softplus_backward)}) {
    std::vector<std::uint16_t> parts;
    for (std::int64_t at = 0; at < (1 << 16); at += 4096) {
      const std::vector<std::uint16_t> part =
          bits_of(backward(dy.slice(0, at, at + 4096), x.slice(0, at, at + 4096)));
      parts.insert(parts.end(), part.begin(), part.end());
    }
    CHECK(difference(one_nan(bits_of(backward(dy, x)), dtype), one_nan(parts, dtype)) == "");
  }
}

// Of all signs and exponents, NaN and infinity too; the last part is all finite and small, and leaves a rest.
std::vector<float> numbers_of_all_sizes() {
  std::vector<float> numbers;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 7919)
    numbers.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  numbers.resize((numbers.size() + 511) / 512 * 512, 0.25F);
  for (int i = -110000; i < 95000; ++i) numbers.push_back(static_cast<float>(i) * 1e-3F);
  numbers.push_back(-0.0F);
  numbers.resize(numbers.size() / 16 * 16 + 5, -87.5F);
  return numbers;
}

// How many elements are not `one` of the numbers at their place; every NaN is the same.
template <class One, class... Numbers>
std::size_t wrong(const Tensor& y, const One& one, const Numbers&... numbers) {
  const std::vector<float> found = y.to_vector<float>();
  std::size_t count = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const float expected = one(numbers[i]...);
    const bool both_nan = expected != expected && found[i] != found[i];
    count += !both_nan &&
             std::bit_cast<std::uint32_t>(expected) != std::bit_cast<std::uint32_t>(found[i]);
  }
  return count;
}

TEST_CASE("functions of many numbers have the bits of each alone") {
  const std::vector<float> numbers = numbers_of_all_sizes();
  const Tensor x = Tensor::from_vector(numbers, {static_cast<std::int64_t>(numbers.size())}, kCpu);
  CHECK(wrong(exp(x), functors::Exp(), numbers) == 0);
  CHECK(wrong(sin(x), functors::Sin(), numbers) == 0);
  CHECK(wrong(cos(x), functors::Cos(), numbers) == 0);
  CHECK(wrong(log(x), functors::Log(), numbers) == 0);
  CHECK(wrong(tanh(x), functors::Tanh(), numbers) == 0);
  CHECK(wrong(erf(x), functors::Erf(), numbers) == 0);
  CHECK(wrong(sigmoid(x), functors::Sigmoid(), numbers) == 0);
  CHECK(wrong(gelu(x), functors::Gelu(), numbers) == 0);
  CHECK(wrong(gelu_tanh(x), functors::GeluTanh(), numbers) == 0);
  CHECK(wrong(silu(x), functors::Silu(), numbers) == 0);
}

TEST_CASE("derivatives of many numbers have the bits of each alone") {
  const std::vector<float> numbers = numbers_of_all_sizes();
  const std::vector<float> slopes(numbers.rbegin(), numbers.rend());
  const Shape shape = {static_cast<std::int64_t>(numbers.size())};
  const Tensor x = Tensor::from_vector(numbers, shape, kCpu);
  const Tensor dy = Tensor::from_vector(slopes, shape, kCpu);
  CHECK(wrong(gelu_backward(dy, x), functors::GeluBackward(), slopes, numbers) == 0);
  CHECK(wrong(gelu_tanh_backward(dy, x), functors::GeluTanhBackward(), slopes, numbers) == 0);
  CHECK(wrong(silu_backward(dy, x), functors::SiluBackward(), slopes, numbers) == 0);
  const Tensor in_place = clone(x);
  gelu_backward_(in_place, dy);
  CHECK(wrong(in_place, functors::GeluBackward(), slopes, numbers) == 0);
}

TEST_CASE("a copy keeps all bits of all elements, signalling NaN too") {
  const DType dtype = GENERATE(DType::kBF16, DType::kF16);
  const Tensor x = of_bits(all_bits(), dtype);
  CHECK(difference(bits_of(clone(x)), all_bits()) == "");
  const Tensor turned = transpose(x.view({256, 256}), 0, 1);
  CHECK(difference(bits_of(transpose(clone(turned), 0, 1)), all_bits()) == "");
  const Tensor to = zeros({1 << 16}, {.dtype = dtype});
  copy_(to.slice(0, 0, 1 << 16, 2), x.slice(0, 1 << 15, 1 << 16));
  const std::vector<std::uint16_t> found = bits_of(to);
  CHECK(found[0] == 1 << 15);
  CHECK(found[1] == 0);
  CHECK(found[(1 << 16) - 2] == (1 << 16) - 1);
  CHECK(bits_of(clone(x.slice(0, 5, 5))).empty());
}

}  // namespace
}  // namespace tessera
