// Attention: layouts, threads, rows that attend to no key, dropout, memory, streams, errors.
#include <catch2/catch.hpp>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/attention.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/ops_support.h"

namespace tessera {
namespace {

using namespace testing;

std::vector<double> f64(const Tensor& x) { return cast(x, DType::kF64).to_vector<double>(); }

struct Sizes {
  std::int64_t batch, heads, kv_heads, queries, keys, dim, value_dim;

  Shape q() const { return {batch, heads, queries, dim}; }
  Shape k() const { return {batch, kv_heads, keys, dim}; }
  Shape v() const { return {batch, kv_heads, keys, value_dim}; }
  Shape out() const { return {batch, heads, queries, value_dim}; }
  Shape probabilities() const { return {batch, heads, queries, keys}; }
};

// All results, one after another.
template <class T>
std::vector<T> bits_of(const AttentionInputs& in, const Tensor& dout,
                       const AttentionOptions& options) {
  const AttentionResult y = scaled_dot_product_attention(in.q, in.k, in.v, options);
  const AttentionInputs d = scaled_dot_product_attention_backward(dout, in, y, options);
  std::vector<T> out;
  for (const Tensor& x : {y.output, y.log_sum_exp, d.q, d.k, d.v}) {
    const auto values = x.to_vector<T>();
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

template <class T>
void check_layouts() {
  const Sizes s{2, 4, 2, 131, 140, 12, 5};
  const AttentionInputs in{
      .q = spread_tensor<T>(s.q()), .k = spread_tensor<T>(s.k()), .v = spread_tensor<T>(s.v())};
  const Tensor dout = spread_tensor<T>(s.out());
  const AttentionOptions options{
      .causal = true, .mask = spread_tensor<T>({131, 140}), .dropout_p = 0.2};
  const auto expected = bits_of<T>(in, dout, options);
  const auto q = layouts(in.q), k = layouts(in.k), v = layouts(in.v), d = layouts(dout),
             m = layouts(options.mask);
  for (std::size_t i = 0; i < q.size(); ++i) {
    AttentionOptions same = options;
    same.mask = m[i];
    CHECK(same_bits(expected, bits_of<T>({.q = q[i], .k = k[i], .v = v[i]}, d[i], same)));
  }
}

TEST_CASE("attention: equal bits for every layout") {
  check_layouts<float>();
  check_layouts<double>();
}

TEST_CASE("attention: heads split off by a transpose, and results like them") {
  const Tensor x = spread_tensor<float>({2, 9, 3 * 4});  // [batch, length, heads * dim]
  const Tensor q = x.view({2, 9, 3, 4}).transpose(1, 2);
  const AttentionInputs in{.q = q, .k = q, .v = q};
  const AttentionResult y = scaled_dot_product_attention(q, q, q);
  CHECK(y.output.shape() == Shape{2, 3, 9, 4});
  CHECK(y.output.transpose(1, 2).is_contiguous());
  const AttentionInputs d = scaled_dot_product_attention_backward(y.output, in, y, {});
  for (const Tensor& gradient : {d.q, d.k, d.v}) CHECK(gradient.transpose(1, 2).is_contiguous());
  const Tensor plain = contiguous(q);
  CHECK(all_equal(contiguous(y.output), scaled_dot_product_attention(plain, plain, plain).output));
  CHECK(scaled_dot_product_attention(plain, plain, plain).output.is_contiguous());
  // Operands are not copied: besides the results there is only the workspace.
  with_threads(1, [&] {
    MemoryCounters& memory = current_rank_context()->memory();
    const AttentionResult result = scaled_dot_product_attention(q, q, q);
    CHECK(memory.peak()[MemoryCategory::kActivation] ==
          memory.current()[MemoryCategory::kActivation]);
  });
}

// The mask that leaves what the causal rule leaves.
Tensor causal_mask(const Sizes& s, CausalAlignment alignment) {
  const std::int64_t diagonal = alignment == CausalAlignment::kBottomRight ? s.keys - s.queries : 0;
  std::vector<bool> may(static_cast<std::size_t>(s.queries * s.keys));
  for (std::int64_t i = 0; i < s.queries; ++i)
    for (std::int64_t j = 0; j < s.keys; ++j)
      may[static_cast<std::size_t>(i * s.keys + j)] = j <= i + diagonal;
  std::vector<double> ones(may.begin(), may.end());
  return cast(Tensor::from_vector(ones, {s.queries, s.keys}), DType::kBool);
}

// The causal rule leaves parts of blocks out; a mask does not. A GPU's kernels may differ.
TEST_CASE("attention: a causal rule has the bits of the mask that says the same") {
  const DefaultDeviceScope host(kCpu);
  for (const auto& [queries, keys] :
       {std::pair(63, 63), {64, 64}, {65, 65}, {128, 128}, {130, 130}, {200, 131}, {40, 300}}) {
    const Sizes s{2, 4, 2, queries, keys, 12, 20};
    for (const CausalAlignment alignment :
         {CausalAlignment::kTopLeft, CausalAlignment::kBottomRight}) {
      for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
        CAPTURE(queries, keys, alignment == CausalAlignment::kBottomRight, dtype);
        const auto made = [&](const Shape& shape) {
          return cast(spread_tensor<double>(shape), dtype);
        };
        const AttentionInputs in{.q = made(s.q()), .k = made(s.k()), .v = made(s.v())};
        const Tensor dout = made(s.out());
        const auto all = [&](const AttentionOptions& options) {
          const AttentionResult y = scaled_dot_product_attention(in.q, in.k, in.v, options);
          const AttentionInputs d = scaled_dot_product_attention_backward(dout, in, y, options);
          return std::vector{f64(y.output), f64(y.log_sum_exp), f64(d.q), f64(d.k), f64(d.v)};
        };
        CHECK(all({.causal = true, .alignment = alignment, .dropout_p = 0.1}) ==
              all({.mask = causal_mask(s, alignment), .dropout_p = 0.1}));
      }
    }
  }
}

TEST_CASE("attention: equal bits for any number of threads") {
  const Sizes s{3, 4, 2, 200, 300, 20, 24};
  const AttentionOptions options{
      .causal = true, .alignment = CausalAlignment::kBottomRight, .dropout_p = 0.1};
  const AttentionInputs f32{.q = spread_tensor<float>(s.q()),
                            .k = spread_tensor<float>(s.k()),
                            .v = spread_tensor<float>(s.v())};
  CHECK(same_for_any_threads(
      [&] { return bits_of<float>(f32, spread_tensor<float>(s.out()), options); }));
  const AttentionInputs f64{.q = spread_tensor<double>(s.q()),
                            .k = spread_tensor<double>(s.k()),
                            .v = spread_tensor<double>(s.v())};
  CHECK(same_for_any_threads(
      [&] { return bits_of<double>(f64, spread_tensor<double>(s.out()), options); }));
}

TEST_CASE("attention: a query that sees nothing gives zeros, a NaN stays one") {
  const Tensor q = spread_tensor<float>({1, 5, 4}), k = spread_tensor<float>({1, 3, 4});
  // Aligned at the bottom right, the first two of five queries precede all three keys.
  const AttentionOptions options{.causal = true, .alignment = CausalAlignment::kBottomRight};
  const AttentionResult y = scaled_dot_product_attention(q, k, k, options);
  const AttentionInputs d =
      scaled_dot_product_attention_backward(full({1, 5, 4}, 1), {q, k, k}, y, options);
  CHECK(all_equal(contiguous(y.output.slice(1, 0, 2)), zeros({1, 2, 4})));
  CHECK(y.log_sum_exp.to_vector<float>()[1] == -std::numeric_limits<float>::infinity());
  CHECK(all_equal(contiguous(d.q.slice(1, 0, 2)), zeros({1, 2, 4})));
  CHECK(std::abs(f64(d.q)[2 * 4]) <= 1e-6);  // one key: its probability is 1, whatever q is
  for (double x : f64(d.k)) CHECK(std::isfinite(x));

  const Tensor nothing = Tensor::from_vector(std::vector<bool>(3, false), {3});
  const AttentionResult hidden = scaled_dot_product_attention(q, k, k, {.mask = nothing});
  CHECK(all_equal(hidden.output, zeros({1, 5, 4})));
  for (const Tensor& x : {d.q, d.k, d.v}) CHECK(x.numel() > 0);
  const AttentionInputs none = scaled_dot_product_attention_backward(full({1, 5, 4}, 1), {q, k, k},
                                                                     hidden, {.mask = nothing});
  for (const Tensor& x : {none.q, none.k, none.v})
    for (double value : f64(x)) CHECK(value == 0);

  std::vector<float> with_nan = q.to_vector<float>();
  with_nan[5] = std::numeric_limits<float>::quiet_NaN();
  const auto out = scaled_dot_product_attention(Tensor::from_vector(with_nan, {1, 5, 4}), k, k)
                       .output.to_vector<float>();
  for (std::size_t i = 0; i < out.size(); ++i) CHECK(std::isnan(out[i]) == (i / 4 == 1));
}

TEST_CASE("attention: large scores do not overflow") {
  const Tensor q = full({1, 2, 3}, 100), v = Tensor::from_vector<float>({1, 2, 3, 4}, {1, 2, 2});
  const AttentionResult y = scaled_dot_product_attention(q, q, v);
  CHECK(all_close(y.output, Tensor::from_vector<float>({2, 3, 2, 3}, {1, 2, 2})));
}

TEST_CASE("attention: dropout does not depend on who computes which sample") {
  const Sizes all{4, 2, 1, 9, 131, 4, 4};
  const Tensor q = spread_tensor<float>(all.q()), k = spread_tensor<float>(all.k());
  const AttentionOptions options{.dropout_p = 0.5, .dropout_key = random::named_key(7, "layer")};
  const Tensor whole = scaled_dot_product_attention(q, k, k, options).output;
  AttentionOptions part = options;
  part.dropout_box = {.global = all.probabilities(), .offset = {1, 0, 0, 0}};
  const Tensor some =
      scaled_dot_product_attention(q.slice(0, 1, 3), k.slice(0, 1, 3), k.slice(0, 1, 3), part)
          .output;
  CHECK(all_equal(some, contiguous(whole.slice(0, 1, 3))));
  // The same for heads.
  part.dropout_box.offset = {0, 1, 0, 0};
  CHECK(all_equal(scaled_dot_product_attention(q.slice(1, 1, 2), k, k, part).output,
                  contiguous(whole.slice(1, 1, 2))));
  part.dropout_p = 1;
  CHECK(all_equal(scaled_dot_product_attention(q.slice(1, 1, 2), k, k, part).output,
                  zeros({4, 1, 9, 4})));
}

// Peak bytes of the forward, and of the backward on top of the forward's results, for a length.
std::pair<std::int64_t, std::int64_t> peaks(std::int64_t length) {
  return with_threads(2, [length] {
    MemoryCounters& memory = current_rank_context()->memory();
    const Tensor x = zeros({2, 2, length, 16}, {.device = kNull});
    memory.reset_peak();
    const AttentionResult y =
        scaled_dot_product_attention(x, x, x, {.causal = true, .dropout_p = 0.1});
    const std::int64_t forward = memory.peak_total();
    memory.reset_peak();
    scaled_dot_product_attention_backward(x, {x, x, x}, y, {.causal = true, .dropout_p = 0.1});
    return std::pair(forward, memory.peak_total());
  });
}

TEST_CASE("attention: memory grows linearly with the length, forward and backward") {
  const auto one = peaks(1024), two = peaks(2048), four = peaks(4096);
  CHECK(four.first - two.first == 2 * (two.first - one.first));
  CHECK(four.second - two.second == 2 * (two.second - one.second));
  // Far less than one matrix of probabilities per head.
  CHECK(four.second < 4 * 4096 * 4096);
}

TEST_CASE("attention: a queued stream runs it as the host does") {
  const Tensor q = spread_tensor<float>({2, 3, 17, 5});
  const Tensor expected = scaled_dot_product_attention(q, q, q).output;
  const DeviceStream queued = DeviceStream::create(kCpu, StreamKind::kQueued, "queued");
  StreamGuard guard(queued);
  const Tensor y = scaled_dot_product_attention(clone(q), clone(q), clone(q)).output;
  queued.synchronize();
  CHECK(all_equal(y, expected));
}

TEST_CASE("attention: errors") {
  const Tensor q = zeros({2, 4, 3, 5}), k = zeros({2, 2, 6, 5}),
               null = zeros({2, 2, 6, 5}, {.device = kNull});
  const auto message = [](const Tensor& a, const Tensor& b, const Tensor& c,
                          const AttentionOptions& options = {}) {
    return thrown<InvalidArgument>([&] { scaled_dot_product_attention(a, b, c, options); });
  };
  const std::string where = "[scaled_dot_product_attention] ";
  CHECK(message({}, k, k) == where + "q is undefined; pass a tensor");
  CHECK(message(q, {}, k) == where + "k is undefined; pass a tensor");
  CHECK(message(q, k, {}) == where + "v is undefined; pass a tensor");
  CHECK(message(arange(3), k, k) == where + "needs a floating dtype, got i64; cast it first");
  CHECK(message(q, cast(k, DType::kF64), k) ==
        where + "operands have dtypes f32 and f64; cast one of them");
  CHECK(message(q, k, null) ==
        where + "operands are on " + default_device().str() + " and null; move them to one device");
  CHECK(message(q, k, zeros({6, 5})) ==
        where +
            "needs q, k and v [.., heads, length, dim] with equally many dims, at least 3; got q "
            "[2, 4, 3, 5] and v [6, 5]");
  CHECK(message(zeros({3, 5}), zeros({6, 5}), zeros({1, 6, 5})) ==
        where +
            "needs q, k and v [.., heads, length, dim] with equally many dims, at least 3; got q "
            "[3, 5] and k [6, 5]");
  CHECK(message(q, k.slice(0, 0, 1), k) ==
        where +
            "q [2, 4, 3, 5], k [1, 2, 6, 5] and v [2, 2, 6, 5] differ in dim 0; all dims before "
            "the heads must agree");
  CHECK(message(q, k, k.slice(2, 0, 5)) ==
        where + "k [2, 2, 6, 5] and v [2, 2, 5, 5] have other heads or lengths; they must agree");
  CHECK(message(q.slice(1, 0, 3), k, k) ==
        where + "q has 3 heads, k and v 2; those of q must be a multiple of theirs");
  CHECK(message(q, k.slice(1, 0, 0), k.slice(1, 0, 0)) ==
        where + "q has 4 heads, k and v 0; those of q must be a multiple of theirs");
  CHECK(message(q, k.slice(3, 0, 4), k) ==
        where +
            "the last dims of q [2, 4, 3, 5], k [2, 2, 6, 4] and v [2, 2, 6, 5] are 5, 4 and 5; "
            "q's and k's must agree and none may be 0");
  CHECK(message(q, k, k.slice(3, 0, 0)) ==
        where +
            "the last dims of q [2, 4, 3, 5], k [2, 2, 6, 5] and v [2, 2, 6, 0] are 5, 5 and 0; "
            "q's and k's must agree and none may be 0");
}

TEST_CASE("attention: errors of mask, scale and dropout") {
  const Tensor q = zeros({2, 4, 3, 5}), k = zeros({2, 2, 6, 5});
  const auto message = [&](const AttentionOptions& options) {
    return thrown<InvalidArgument>([&] { scaled_dot_product_attention(q, k, k, options); });
  };
  const std::string where = "[scaled_dot_product_attention] ";
  CHECK(message({.mask = arange(6)}) ==
        where + "the mask has dtype i64; it must be bool (true: may attend) or floating (added)");
  CHECK(message({.mask = zeros({6}, {.device = kNull})}) ==
        where + "operands are on " + default_device().str() + " and null; move them to one device");
  CHECK(message({.mask = zeros({3, 5})}) ==
        where +
            "the mask [3, 5] does not broadcast to the scores [2, 4, 3, 6]; its extents must be "
            "theirs or 1");
  CHECK(message({.mask = zeros({1, 2, 4, 3, 6})}) ==
        where +
            "the mask [1, 2, 4, 3, 6] does not broadcast to the scores [2, 4, 3, 6]; its extents "
            "must be theirs or 1");
  CHECK(message({.scale = std::nan("")}) == where + "the scale is nan; it must be finite");
  CHECK(message({.dropout_p = 1.5}) == where + "dropout_p is 1.5; it must lie in [0, 1]");
  CHECK(message(
            {.dropout_p = 0.5, .dropout_box = {.global = {2, 4, 3, 6}, .offset = {1, 0, 0, 0}}}) ==
        where +
            "probabilities of shape [2, 4, 3, 6] at [1, 0, 0, 0] do not lie inside the global "
            "shape [2, 4, 3, 6]");
}

TEST_CASE("attention: errors of the derivative") {
  const Tensor q = zeros({2, 3, 5});
  const AttentionInputs in{.q = q, .k = q, .v = q};
  const AttentionResult y = scaled_dot_product_attention(q, q, q);
  const auto message = [&](const Tensor& dout, const AttentionResult& result) {
    return thrown<InvalidArgument>(
        [&] { scaled_dot_product_attention_backward(dout, in, result, {}); });
  };
  const std::string where = "[scaled_dot_product_attention_backward] ";
  CHECK(message({}, y) == where + "the output's gradient is undefined; pass a tensor");
  CHECK(message(zeros({2, 3, 4}), y) ==
        where + "the output's gradient is f32 [2, 3, 4], expected f32 [2, 3, 5]");
  CHECK(message(zeros({2, 3, 5}, {.device = kNull}), y) ==
        where + "operands are on " + default_device().str() + " and null; move them to one device");
  CHECK(message(q, {.output = q, .log_sum_exp = q}) ==
        where + "log_sum_exp is f32 [2, 3, 5], expected f32 [2, 3]");
  CHECK(message(q, {.output = q, .log_sum_exp = zeros({3, 2}).transpose(0, 1)}) ==
        where +
            "log_sum_exp [2, 3] has strides [1, 2]; pass the one of the forward, which is "
            "contiguous");
}

}  // namespace
}  // namespace tessera
