// Dropout against the generator's own numbers; the rotary embedding against its formula and
// PyTorch.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/nn.h"
#include "tessera/tensor/ops/random.h"
#include "tessera/tests/support/reference.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/nn_support.h"

namespace tessera {
namespace {

using namespace testing;

constexpr random::Key kKey{0x1234567890abcdefull};

std::vector<float> uniforms(const Shape& shape, const random::Box& box) {
  const Tensor u = Tensor::empty(shape);
  random::fill_uniform(u, kKey, box, 0, 1);
  return u.to_vector<float>();
}

TEST_CASE("dropout: what the uniform numbers say, for every dtype and layout") {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{70'001}, Shape{3, 5}, Shape{2, 3, 37}}) {
    INFO(shape.str());
    const random::Box box = random::whole(shape);
    const Tensor x = spread_tensor<double>(shape, 1, 2);
    const auto u = uniforms(shape, box);
    const auto in = x.to_vector<double>();
    for (double p : {0.0, 0.1, 0.5, 1.0}) {
      const auto y = dropout(x, p, kKey, box).to_vector<double>();
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < y.size(); ++i)
        wrong += y[i] != (u[i] >= p ? in[i] * (1 / (1 - p)) : 0.0);
      CHECK(wrong == 0);
      check_dtypes(x, [&](const Tensor& t) { return dropout(t, p, kKey, box); });
    }
  }
  CHECK(dropout(zeros({0, 3}), 0.5, kKey, random::whole({0, 3})).shape() == Shape{0, 3});
}

TEST_CASE("dropout: drops a share p, and another for another key") {
  const Shape shape{100'000};
  const Tensor x = ones(shape);
  for (double p : {0.1, 0.9}) {
    const auto y = dropout(x, p, kKey, random::whole(shape)).to_vector<float>();
    const auto dropped = static_cast<double>(std::count(y.begin(), y.end(), 0.0f));
    CHECK(std::abs(dropped / 100'000 - p) < 0.005);
    CHECK(y != dropout(x, p, {kKey.value + 1}, random::whole(shape)).to_vector<float>());
  }
}

TEST_CASE("dropout: a part drops what the whole drops there") {
  const Shape global{7, 9, 5};
  const Tensor x = spread_tensor<float>(global, 1, 2);
  const Tensor whole = dropout(x, 0.4, kKey, random::whole(global));
  for (const auto& [offset, extent] :
       {std::pair(Shape{2, 0, 0}, Shape{3, 9, 5}), std::pair(Shape{0, 3, 1}, Shape{7, 4, 3}),
        std::pair(Shape{1, 2, 3}, Shape{5, 6, 1}), std::pair(Shape{6, 8, 4}, Shape{1, 1, 1})}) {
    INFO(offset.str() << extent.str());
    const auto part = [&, o = offset, e = extent](Tensor t) {
      for (int d = 0; d < 3; ++d) t = t.slice(d, o[d], o[d] + e[d]);
      return contiguous(t);
    };
    CHECK(
        all_equal(dropout(part(x), 0.4, kKey, {.global = global, .offset = offset}), part(whole)));
  }
}

TEST_CASE("dropout: p of 0 and 1 are exact, whatever is dropped") {
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor x = Tensor::from_vector<double>({1.1, infinity, std::nan(""), -0.0}, {4});
  CHECK(all_equal(dropout(x, 0, kKey, random::whole({4})), x));
  CHECK(all_equal(dropout(x, 1, kKey, random::whole({4})), zeros({4}, x.options())));
}

TEST_CASE("dropout: equal bits for any number of threads") {
  const Tensor x = spread_tensor<float>({300, 701});
  CHECK(same_for_any_threads([&] {
    return dropout(x, 0.3, kKey, random::whole({300, 701})).to_vector<float>();
  }));
}

TEST_CASE("dropout_backward: drops what dropout drops, with the mask and without") {
  for (const Shape& shape :
       {Shape{}, Shape{1}, Shape{0, 3}, Shape{15}, Shape{17}, Shape{511}, Shape{512}, Shape{513},
        Shape{3, 67}, Shape{2, 3, 370}, Shape{70'001}}) {
    // A part of a global tensor, so that runs of positions end inside blocks of the mask.
    Shape global = shape;
    if (shape.ndim() > 0) global = shape.with(shape.ndim() - 1, shape[shape.ndim() - 1] + 5);
    const random::Box box{.global = global, .offset = Shape::filled(shape.ndim(), 0)};
    const Tensor x = spread_tensor<double>(shape, 1, 2), dy = spread_tensor<double>(shape, 3, 4);
    for (double p : {0.0, 0.1, 0.5, 1.0}) {
      INFO(shape.str() << ", p " << p);
      const DropoutResult r = dropout_with_mask(x, p, kKey, box);
      CHECK(r.mask.defined() == default_device().is_cpu());
      CHECK(all_equal(r.output, dropout(x, p, kKey, box)));
      check_dtypes(dy, [&](const Tensor& t) { return dropout_backward(t, r.mask, p, kKey, box); });
      for (DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
        for (const Tensor& layout : layouts(cast(dy, dtype))) {
          const Tensor expected = dropout(layout, p, kKey, box);
          CHECK(all_equal(dropout_backward(layout, r.mask, p, kKey, box), expected));
          CHECK(all_equal(dropout_backward(layout, {}, p, kKey, box), expected));
        }
      }
    }
  }
  const Tensor x = spread_tensor<float>({300, 701});
  const Tensor mask = dropout_with_mask(x, 0.3, kKey, random::whole({300, 701})).mask;
  CHECK(same_for_any_threads([&] {
    return dropout_backward(x, mask, 0.3, kKey, random::whole({300, 701})).to_vector<float>();
  }));
  CHECK(same_for_any_threads([&] {
    const DropoutResult r = dropout_with_mask(x, 0.3, kKey, random::whole({300, 701}));
    return (r.mask.defined() ? cast(r.mask, DType::kF32) : r.output).to_vector<float>();
  }));
}

TEST_CASE("dropout_backward: infinities and NaN of dropped elements leave no trace") {
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor dy = Tensor::from_vector<double>({1.1, infinity, std::nan(""), -0.0}, {4});
  for (double p : {0.0, 1.0}) {
    const Tensor mask = dropout_with_mask(dy, p, kKey, random::whole({4})).mask;
    CHECK(all_equal(dropout_backward(dy, mask, p, kKey, random::whole({4})),
                    p == 0 ? dy : zeros({4}, dy.options())));
  }
}

TEST_CASE("dropout_backward: a mask that is not dropout's") {
  const Tensor dy = zeros({3, 200});
  const auto message = [&](const Tensor& mask) {
    return thrown<InvalidArgument>([&] {
      dropout_backward(dy, mask, 0.5, kKey, random::whole({3, 200}));
    });
  };
  const std::string end = "; pass the one of dropout_with_mask";
  const std::string device = default_device().str();
  CHECK(message(zeros({3, 200}, {.dtype = DType::kBool})) ==
        "[dropout_backward] the mask is bool of shape [3, 200] on " + device + end);
  CHECK(message(zeros({64}, {.dtype = DType::kU8})) ==
        "[dropout_backward] the mask is u8 of shape [64] on " + device + end);
  CHECK(message(zeros({256}, {.dtype = DType::kU8}).slice(0, 0, 256, 2)) ==
        "[dropout_backward] the mask is u8 of shape [128] on " + device + end);
}

TEST_CASE("dropout: errors") {
  const Tensor x = zeros({2, 3});
  const auto message = [](const Tensor& in, double p, const random::Box& box) {
    return thrown<InvalidArgument>([&] { dropout(in, p, kKey, box); });
  };
  CHECK(message(Tensor(), 0.5, {}) == "[dropout] the tensor is undefined; pass a tensor");
  CHECK(message(arange(3), 0.5, {}) == "[dropout] needs a floating dtype, got i64; cast it first");
  CHECK(message(x, -0.5, random::whole({2, 3})) == "[dropout] p is -0.5; it must lie in [0, 1]");
  CHECK(message(x, std::nan(""), random::whole({2, 3})) ==
        "[dropout] p is nan; it must lie in [0, 1]");
  CHECK(message(x, 0.5, {.global = {2, 3}, .offset = {1, 0}}) ==
        "[dropout] a box of shape [2, 3] at [1, 0] does not lie inside the global shape [2, 3]");
  CHECK(message(x, 0.5, random::whole({6})) ==
        "[dropout] a box of shape [2, 3] at [0] does not lie inside the global shape [6]");
}

TEST_CASE("rotary_table: cosines and sines of the formula") {
  const RotaryTable table = rotary_table(9, 6, {.base = 500, .offset = 100'000});
  CHECK(table.cos.shape() == Shape{9, 3});
  const auto cos = table.cos.to_vector<float>(), sin = table.sin.to_vector<float>();
  for (std::size_t t = 0; t < 9; ++t) {
    for (std::size_t i = 0; i < 3; ++i) {
      const double angle =
          (100'000 + static_cast<double>(t)) * std::pow(500.0, -2.0 * static_cast<double>(i) / 6);
      CHECK(std::abs(cos[t * 3 + i] - std::cos(angle)) < 1e-7);
      CHECK(std::abs(sin[t * 3 + i] - std::sin(angle)) < 1e-7);
    }
  }
  CHECK(rotary_table(0, 6).cos.shape() == Shape{0, 3});
  CHECK(rotary_table(3, 0).sin.shape() == Shape{3, 0});
}

TEST_CASE("rotary: what the reference computes") {
  for (const ReferenceCase& c : load_reference("rotary")) {
    INFO(c.name);
    const Tensor& x = c.tensor("x");
    const RotaryTable table = rotary_table(x.dim(-3), x.dim(-1),
                                           {.base = c.number("base"),
                                            .offset = static_cast<std::int64_t>(c.number("offset")),
                                            .dtype = DType::kF64});
    CHECK(all_close(table.cos, c.tensor("cos")));
    CHECK(all_close(table.sin, c.tensor("sin")));
    RotaryOptions options{.pairing = c.flag("interleaved") ? RotaryPairing::kNeighbours
                                                           : RotaryPairing::kHalves};
    const Tensor y = rotary(x, table, options);
    CHECK(all_close(y, c.tensor("y")));
    options.inverse = true;
    CHECK(all_close(rotary(y, table, options), x));
    CHECK(all_close(rotary(c.tensor("dy"), table, options), c.tensor("dx")));
  }
}

TEST_CASE("rotary: every dtype and layout, parts of heads and of sequences") {
  const Tensor x = spread_tensor<double>({2, 5, 3, 8});
  for (RotaryPairing pairing : {RotaryPairing::kHalves, RotaryPairing::kNeighbours}) {
    const RotaryOptions options{.pairing = pairing};
    check_dtypes(x, [&](const Tensor& in) {
      return rotary(in, rotary_table(5, 8, {.dtype = compute_dtype(in.dtype())}), options);
    });
    const RotaryTable table = rotary_table(5, 8, {.dtype = DType::kF64});
    const RotaryTable later{table.cos.slice(0, 2, 4), table.sin.slice(0, 2, 4)};
    const Tensor y = rotary(x, table, options);
    CHECK(all_equal(rotary(x.slice(1, 2, 4), later, options), contiguous(y.slice(1, 2, 4))));
    // A table for 4 of 8 features.
    const RotaryTable narrow = rotary_table(5, 4, {.dtype = DType::kF64});
    const Tensor part = rotary(x, narrow, options);
    CHECK(all_equal(contiguous(part.slice(-1, 0, 4)), rotary(x.slice(-1, 0, 4), narrow, options)));
    CHECK(all_equal(contiguous(part.slice(-1, 4, 8)), contiguous(x.slice(-1, 4, 8))));
    // Columns of a wider table are not adjacent to the next ones.
    const RotaryTable columns{table.cos.transpose(0, 1).slice(0, 0, 2).transpose(0, 1),
                              table.sin.transpose(0, 1).slice(0, 0, 2).transpose(0, 1)};
    CHECK(all_equal(rotary(x, columns, options),
                    rotary(x, {contiguous(columns.cos), contiguous(columns.sin)}, options)));
  }
  CHECK(rotary(zeros({0, 5, 3, 8}), rotary_table(5, 8)).shape() == Shape{0, 5, 3, 8});
  CHECK(rotary(zeros({5, 3, 0}), rotary_table(5, 0)).shape() == Shape{5, 3, 0});
  const Tensor wide = spread_tensor<float>({900, 7, 10});
  CHECK(
      same_for_any_threads([&] { return rotary(wide, rotary_table(900, 10)).to_vector<float>(); }));
}

TEST_CASE("rotary: errors") {
  const Tensor x = zeros({2, 5, 3, 8});
  const auto message = [](const Tensor& in, const RotaryTable& table) {
    return thrown<InvalidArgument>([&] { rotary(in, table); });
  };
  const RotaryTable table = rotary_table(5, 8);
  CHECK(message(Tensor(), table) == "[rotary] the tensor is undefined; pass a tensor");
  CHECK(message(zeros({3, 8}), table) ==
        "[rotary] needs an input [..., positions, heads, features], got shape [3, 8]");
  CHECK(message(x, {}) == "[rotary] cos is undefined; pass a tensor");
  CHECK(message(x, rotary_table(4, 8)) ==
        "[rotary] cos has shape [4, 4]; an input [..., positions, heads, features] of shape [2, 5, "
        "3, 8] needs [5, 4 or fewer]");
  CHECK(message(x, {table.cos, rotary_table(5, 6).sin}) ==
        "[rotary] shapes [5, 4] and [5, 3] differ; they must be equal");
  CHECK(message(cast(x, DType::kF64), table) ==
        "[rotary] cos has dtype f32; an input of f64 needs f64");
  const auto table_message = [](std::int64_t features, const RotaryTableOptions& options) {
    return thrown<InvalidArgument>([&] { rotary_table(3, features, options); });
  };
  CHECK(table_message(7, {}) ==
        "[rotary_table] got 3 positions and 7 features; features must be even, neither negative");
  CHECK(table_message(8, {.base = 0}) ==
        "[rotary_table] base is 0 and offset 0; base must be above 0, offset not negative");
  CHECK(table_message(8, {.dtype = DType::kBF16}) ==
        "[rotary_table] dtype is bf16; the table is f32 or f64");
}

}  // namespace
}  // namespace tessera
