// Products of odd extents as several: each part has unit strides along multiples of 16 bytes, and all
// together give the product.
#include "tessera/tensor/kernels/cuda/cublas/matmul_parts.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

namespace tessera {
namespace {

using Args = MatmulKernel::Args;
using cuda::matmul_parts;

constexpr std::int64_t kOdd = cuda::kLeastSplitExtent + 5, kWhole = cuda::kLeastSplitExtent;

struct Layout {
  bool by_rows = true;
  std::int64_t leading = 0;  // 0: the extent rounded up to a multiple of 8
};

std::int64_t rounded(std::int64_t n) { return (n + 7) / 8 * 8; }

template <class AnyView>
AnyView matrix(std::int64_t rows, std::int64_t columns, const Layout& layout, DType dtype,
               std::uintptr_t address) {
  const std::int64_t inner = layout.by_rows ? columns : rows;
  const std::int64_t leading = layout.leading != 0 ? layout.leading : rounded(inner);
  AnyView out;
  out.data = reinterpret_cast<void*>(address);  // never dereferenced
  out.dtype = dtype;
  out.shape = {rows, columns};
  out.strides = layout.by_rows ? Shape{leading, 1} : Shape{1, leading};
  return out;
}

struct Case {
  std::int64_t m = 16, n = 24, k = 32;
  Layout a{}, b{}, c{};
  DType operands = DType::kBF16, result = DType::kBF16;
  std::uintptr_t address = 4096;

  Args args() const {
    return {.a = matrix<ConstView>(m, k, a, operands, address),
            .b = matrix<ConstView>(k, n, b, operands, 1 << 20),
            .bias = {},
            .before = {},
            .c = matrix<View>(m, n, c, result, 1 << 24),
            .alpha = 2,
            .beta = 3};
  }
};

std::int64_t offset_in(const ConstView& part, const ConstView& all) {
  return (static_cast<const char*>(part.data) - static_cast<const char*>(all.data)) /
         static_cast<std::int64_t>(dtype_size(all.dtype));
}
ConstView read_only(const View& view) {
  return {.data = view.data, .dtype = view.dtype, .shape = view.shape, .strides = view.strides};
}

// Terms that the parts add to each element of c: 1 for each k, exactly once; -1 if c is scaled twice.
std::vector<std::int64_t> terms(const Case& c, const std::vector<Args>& parts) {
  const Args all = c.args();
  std::vector<std::int64_t> out(static_cast<std::size_t>(c.m * c.n), 0);
  std::vector<bool> written(out.size(), false);
  for (const Args& part : parts) {
    const std::int64_t from_a = offset_in(part.a, all.a), from_b = offset_in(part.b, all.b),
                       from_c = offset_in(read_only(part.c), read_only(all.c));
    const std::int64_t row = from_c / all.c.strides[0], column = from_c % all.c.strides[0];
    // Where a and b begin agrees with where c does.
    const std::int64_t inner = from_a - row * all.a.strides[0];
    CHECK(inner % all.a.strides[1] == 0);
    CHECK(from_b == inner / all.a.strides[1] * all.b.strides[0] + column * all.b.strides[1]);
    CHECK(part.alpha == 2);
    for (std::int64_t i = 0; i < part.m(); ++i) {
      for (std::int64_t j = 0; j < part.n(); ++j) {
        const auto at = static_cast<std::size_t>((row + i) * c.n + column + j);
        out[at] += part.k();
        if (part.beta != (written[at] ? 1 : 3)) out[at] = -1;
        written[at] = true;
      }
    }
  }
  return out;
}

void check_split(const Case& c, std::size_t count) {
  const std::vector<Args> parts = matmul_parts(c.args());
  REQUIRE(parts.size() == count);
  CHECK((terms(c, parts) == std::vector<std::int64_t>(static_cast<std::size_t>(c.m * c.n), c.k)));
}

TEST_CASE("parts: the three products of a head with an odd vocabulary") {
  const Layout by_columns{.by_rows = false};
  check_split({.n = kOdd, .b = by_columns}, 2);                         // logits
  check_split({.k = kOdd}, 2);                                          // the derivative by x
  check_split({.m = kOdd, .a = by_columns, .result = DType::kF32}, 2);  // by the weight
  for (const Args& part : matmul_parts(Case{.n = kOdd, .b = by_columns}.args()))
    CHECK((part.n() == 5 || part.n() == kWhole));
}

TEST_CASE("parts: several odd extents") {
  check_split({.n = kOdd, .k = kOdd, .b = {.by_rows = false}}, 4);
  check_split({.m = kOdd, .n = kOdd, .k = kOdd, .a = {.by_rows = false}, .b = {.by_rows = false}},
              8);
}

TEST_CASE("parts: nothing is cut where nothing is gained") {
  CHECK(matmul_parts(Case{}.args()).empty());
  CHECK(matmul_parts(Case{.n = kWhole}.args()).empty());
  CHECK(matmul_parts(Case{.n = kWhole - 3}.args()).empty());                    // short
  CHECK(matmul_parts(Case{.n = kOdd, .c = {.leading = kOdd}}.args()).empty());  // rows lie anyhow
  CHECK(matmul_parts(Case{.k = kOdd, .address = 4098}.args()).empty());
  CHECK(matmul_parts(Case{.m = kOdd}.args()).empty());  // nothing has unit stride along the rows
  const Case wide{.n = kOdd, .operands = DType::kF32, .result = DType::kF32};
  CHECK(matmul_parts(wide.args()).empty());
}

TEST_CASE("parts: a bias is cut with the columns; before it the inner extent stays whole") {
  Args args = Case{.n = kOdd, .k = kOdd, .b = {.by_rows = false}}.args();
  args.alpha = 1;
  args.beta = 0;
  args.bias = {
      .data = reinterpret_cast<void*>(64), .dtype = DType::kBF16, .shape = {kOdd}, .strides = {1}};
  args.before = args.c;
  args.activation = ActivationKind::kRelu;
  const std::vector<Args> parts = matmul_parts(args);
  REQUIRE(parts.size() == 2);
  for (const Args& part : parts) {
    CHECK(part.k() == kOdd);
    CHECK(part.bias.shape == Shape{part.n()});
    CHECK(offset_in(part.bias, args.bias) == (part.n() == 5 ? kWhole : 0));
    CHECK(part.before.data == part.c.data);
    CHECK(part.before.shape == part.c.shape);
  }
}

TEST_CASE("parts: the scratch is enough for each") {
  const Args args = Case{.n = kOdd, .b = {.by_rows = false}}.args();
  for (const Args& part : matmul_parts(args))
    CHECK(MatmulKernel::cuda_workspace(args) >= MatmulKernel::cuda_workspace(part));
}

}  // namespace
}  // namespace tessera
