// Attention and its derivative: values against plain loops and PyTorch, for every mask and rule.
#include "tessera/tensor/ops/attention.h"

#include <catch2/catch.hpp>
#include <functional>

#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/support/close.h"
#include "tessera/tests/support/reference.h"
#include "tessera/tests/support/throws.h"
#include "tessera/tests/tensor/ops/ops_support.h"

namespace tessera {
namespace {

using namespace testing;

constexpr double kNever = -std::numeric_limits<double>::infinity();

struct Sizes {
  std::int64_t batch, heads, kv_heads, queries, keys, dim, value_dim;

  Shape q() const { return {batch, heads, queries, dim}; }
  Shape k() const { return {batch, kv_heads, keys, dim}; }
  Shape v() const { return {batch, kv_heads, keys, value_dim}; }
  Shape out() const { return {batch, heads, queries, value_dim}; }
  Shape probabilities() const { return {batch, heads, queries, keys}; }
};

// The effect of the rule on each score, by plain index.
struct SlowRule {
  double scale = 1;
  std::function<double(std::int64_t at, std::int64_t i, std::int64_t j)>
      bias;                  // added; -inf: hidden
  std::vector<double> keep;  // per probability; empty: 1
};

struct SlowResult {
  std::vector<double> out, log_sum_exp, dq, dk, dv;
};

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Plain loops and the textbook derivative of softmax, row by row, in f64.
SlowResult slow_attention(const Sizes& s, const std::vector<double>& q,
                          const std::vector<double>& k, const std::vector<double>& v,
                          const std::vector<double>& dout, const SlowRule& rule) {
  SlowResult r{.out = std::vector<double>(at(s.out().numel())),
               .log_sum_exp = {},
               .dq = std::vector<double>(q.size()),
               .dk = std::vector<double>(k.size()),
               .dv = std::vector<double>(v.size())};
  for (std::int64_t row = 0; row < s.batch * s.heads * s.queries; ++row) {
    const std::int64_t i = row % s.queries, head = row / s.queries % s.heads,
                       b = row / s.queries / s.heads;
    const std::int64_t kv = (b * s.kv_heads + head / (s.heads / s.kv_heads)) * s.keys;
    std::vector<double> p(at(s.keys)), dp(at(s.keys));
    double total = 0, mean = 0;
    for (std::int64_t j = 0; j < s.keys; ++j) {
      double dot = 0;
      for (std::int64_t c = 0; c < s.dim; ++c)
        dot += q[at(row * s.dim + c)] * k[at((kv + j) * s.dim + c)];
      p[at(j)] = std::exp(rule.scale * dot + rule.bias(row * s.keys + j, i, j));
      total += p[at(j)];
    }
    r.log_sum_exp.push_back(std::log(total));
    if (total == 0) continue;
    for (std::int64_t j = 0; j < s.keys; ++j) {
      p[at(j)] /= total;
      const double keep = rule.keep.empty() ? 1 : rule.keep[at(row * s.keys + j)];
      for (std::int64_t c = 0; c < s.value_dim; ++c) {
        const double d = dout[at(row * s.value_dim + c)], x = v[at((kv + j) * s.value_dim + c)];
        r.out[at(row * s.value_dim + c)] += p[at(j)] * keep * x;
        r.dv[at((kv + j) * s.value_dim + c)] += p[at(j)] * keep * d;
        dp[at(j)] += keep * d * x;
      }
      mean += p[at(j)] * dp[at(j)];
    }
    for (std::int64_t j = 0; j < s.keys; ++j) {
      const double ds = rule.scale * p[at(j)] * (dp[at(j)] - mean);
      for (std::int64_t c = 0; c < s.dim; ++c) {
        r.dq[at(row * s.dim + c)] += ds * k[at((kv + j) * s.dim + c)];
        r.dk[at((kv + j) * s.dim + c)] += ds * q[at(row * s.dim + c)];
      }
    }
  }
  return r;
}

std::vector<double> f64(const Tensor& x) { return cast(x, DType::kF64).to_vector<double>(); }

// The largest |got - expected|, relative to the largest expected element.
double distance(const Tensor& got, const std::vector<double>& expected) {
  const auto values = f64(got);
  REQUIRE(values.size() == expected.size());
  double worst = 0, largest = 0.1;  // near 0 a gradient is a difference of rounded numbers
  for (double x : expected) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double off = std::abs(values[i] - expected[i]);
    worst = std::isnan(off) ? kNever * -1 : std::max(worst, off);
  }
  return worst / largest;
}

// A mask that hides about every third score, and all scores of rows below `hidden_rows`.
Tensor bool_mask(const Shape& shape, std::int64_t hidden_rows) {
  std::vector<bool> mask(at(shape.numel()));
  for (std::size_t i = 0; i < mask.size(); ++i)
    mask[i] =
        (i * 7 + i / 5) % 3 != 0 && static_cast<std::int64_t>(i) / shape.back() >= hidden_rows;
  return Tensor::from_vector(mask, shape);
}

// 0 or 1 / (1 - p) for every probability, as the header defines it.
std::vector<double> keep_factors(const Sizes& s, const AttentionOptions& options) {
  const Tensor numbers = Tensor::empty(s.probabilities());
  const random::Box box = options.dropout_box.global.ndim() > 0 ? options.dropout_box
                                                                : random::whole(s.probabilities());
  random::fill_uniform(numbers, options.dropout_key, box, 0, 1);
  std::vector<double> keep;
  for (float u : numbers.to_vector<float>())
    keep.push_back(u >= static_cast<float>(options.dropout_p) ? 1 / (1 - options.dropout_p) : 0);
  return keep;
}

SlowRule slow_rule(const Sizes& s, const AttentionOptions& options) {
  SlowRule rule;
  rule.scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(s.dim)));
  std::vector<double> mask;
  const bool is_bool = options.mask.defined() && options.mask.dtype() == DType::kBool;
  if (options.mask.defined()) mask = f64(options.mask.expand(s.probabilities()));
  const std::int64_t diagonal =
      options.alignment == CausalAlignment::kBottomRight ? s.keys - s.queries : 0;
  rule.bias = [=, causal = options.causal](std::int64_t index, std::int64_t i, std::int64_t j) {
    if (causal && j > i + diagonal) return kNever;
    if (mask.empty()) return 0.0;
    return !is_bool ? mask[at(index)] : mask[at(index)] != 0 ? 0.0 : kNever;
  };
  if (options.dropout_p > 0) rule.keep = keep_factors(s, options);
  return rule;
}

// Forward and backward of one case, in one dtype, against the plain loops on the same numbers.
void check_case(const Sizes& s, const AttentionOptions& options, DType dtype, double tolerance) {
  const auto make = [&](const Shape& shape) {
    return cast(spread_tensor<double>(shape, -1.5, 1.5), dtype);
  };
  const AttentionInputs in{.q = make(s.q()), .k = make(s.k()), .v = make(s.v())};
  const Tensor dout = make(s.out());
  const SlowResult slow =
      slow_attention(s, f64(in.q), f64(in.k), f64(in.v), f64(dout), slow_rule(s, options));
  const AttentionResult got = scaled_dot_product_attention(in.q, in.k, in.v, options);
  const AttentionInputs gradients = scaled_dot_product_attention_backward(dout, in, got, options);
  INFO(dtype_name(dtype) << " q " << s.q().str() << " k " << s.k().str() << " v " << s.v().str()
                         << " causal " << options.causal << " mask " << options.mask.defined()
                         << " dropout " << options.dropout_p);
  CHECK(got.output.shape() == s.out());
  CHECK(got.output.dtype() == dtype);
  CHECK(got.log_sum_exp.dtype() == compute_dtype(dtype));
  CHECK(distance(got.output, slow.out) <= tolerance);
  const auto log_sum_exp = f64(got.log_sum_exp);
  for (std::size_t i = 0; i < log_sum_exp.size(); ++i) {
    const bool same = log_sum_exp[i] == slow.log_sum_exp[i];
    CHECK((same || std::abs(log_sum_exp[i] - slow.log_sum_exp[i]) <= 1e-5));
  }
  CHECK(distance(gradients.q, slow.dq) <= tolerance);
  CHECK(distance(gradients.k, slow.dk) <= tolerance);
  CHECK(distance(gradients.v, slow.dv) <= tolerance);
}

std::vector<AttentionOptions> rules(const Sizes& s) {
  const Tensor added = spread_tensor<double>({s.heads, 1, s.keys}, -2, 2);
  std::vector<AttentionOptions> out;
  out.push_back({});
  out.push_back({.causal = true});
  out.push_back({.causal = true, .alignment = CausalAlignment::kBottomRight, .scale = 0.3});
  out.push_back({.mask = bool_mask({s.queries, s.keys}, 0)});
  out.push_back({.mask = bool_mask({s.batch, 1, s.queries, s.keys}, 2)});
  out.push_back({.mask = added, .scale = -0.5});
  out.push_back({.dropout_p = 0.3, .dropout_key = random::named_key(1, "dropout")});
  out.push_back({.causal = true,
                 .mask = cast(added, DType::kBF16),
                 .dropout_p = 0.6,
                 .dropout_key = random::named_key(2, "dropout"),
                 .dropout_box = {.global = {s.batch + 2, s.heads + 1, s.queries + 3, s.keys + 1},
                                 .offset = {1, 1, 2, 1}}});
  return out;
}

TEST_CASE("attention: odd sizes and every rule, against plain loops") {
  for (const Sizes& s :
       {Sizes{1, 1, 1, 1, 1, 1, 1}, Sizes{2, 3, 1, 5, 7, 3, 5}, Sizes{1, 4, 2, 3, 2, 16, 1},
        Sizes{1, 2, 2, 1, 150, 8, 8}, Sizes{2, 6, 2, 1, 150, 8, 4},
        Sizes{1, 2, 1, 130, 257, 17, 33}, Sizes{1, 1, 1, 257, 129, 5, 20}}) {
    for (const AttentionOptions& options : rules(s)) {
      check_case(s, options, DType::kF64, 1e-12);
      check_case(s, options, DType::kF32, 4e-6);
    }
  }
}

TEST_CASE("attention: 16-bit dtypes are computed in f32 and rounded once") {
  for (const Sizes& s : {Sizes{2, 3, 1, 5, 7, 3, 5}, Sizes{1, 2, 2, 130, 140, 17, 9}}) {
    for (const AttentionOptions& options : rules(s)) {
      check_case(s, options, DType::kBF16, 6e-3);
      check_case(s, options, DType::kF16, 8e-4);
    }
  }
}

TEST_CASE("attention: no queries, keys, heads or samples") {
  for (const Sizes& s : {Sizes{1, 2, 1, 0, 3, 4, 2}, Sizes{2, 2, 1, 3, 0, 4, 2},
                         Sizes{0, 2, 1, 3, 5, 4, 2}, Sizes{1, 0, 1, 3, 5, 4, 2}}) {
    for (const AttentionOptions& options : {AttentionOptions{}, AttentionOptions{.causal = true}}) {
      check_case(s, options, DType::kF32, 0);
      check_case(s, options, DType::kF64, 0);
    }
  }
  const Tensor none = zeros({1, 0, 3, 4});
  CHECK(scaled_dot_product_attention(none, none, none).output.shape() == Shape{1, 0, 3, 4});
}

TEST_CASE("attention: other numbers of dims before the heads") {
  const Tensor q = spread_tensor<float>({2, 3, 2, 5, 4}), k = spread_tensor<float>({2, 3, 1, 6, 4});
  const Tensor whole = scaled_dot_product_attention(q, k, k).output;
  for (std::int64_t a = 0; a < 2; ++a) {
    for (std::int64_t b = 0; b < 3; ++b) {
      const Tensor kab = k.select(0, a).select(0, b);
      const Tensor part =
          scaled_dot_product_attention(q.select(0, a).select(0, b), kab, kab).output;
      CHECK(all_equal(contiguous(whole.select(0, a).select(0, b)), part));
    }
  }
}

TEST_CASE("attention: PyTorch's values") {
  for (const ReferenceCase& c : load_reference("attention")) {
    INFO(c.name);
    const AttentionInputs in{.q = c.tensor("query"), .k = c.tensor("key"), .v = c.tensor("value")};
    const AttentionOptions options{
        .causal = c.flag("causal"), .mask = c.optional("mask"), .scale = c.number("scale")};
    const AttentionResult y = scaled_dot_product_attention(in.q, in.k, in.v, options);
    CHECK(all_close(y.output, c.tensor("y")));
    const AttentionInputs d = scaled_dot_product_attention_backward(c.tensor("dy"), in, y, options);
    CHECK(all_close(d.q, c.tensor("dquery")));
    CHECK(all_close(d.k, c.tensor("dkey")));
    CHECK(all_close(d.v, c.tensor("dvalue")));
  }
}

}  // namespace
}  // namespace tessera
