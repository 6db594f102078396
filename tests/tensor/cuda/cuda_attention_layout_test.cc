// The division of attention and convolution on a GPU, and the choice between cuDNN and our kernels.
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tessera/tensor/kernels/cuda/cudnn/cudnn_plan_cache.h"
#include "tessera/tensor/kernels/cuda/cudnn/cudnn_slices.h"
#include "tessera/tensor/kernels/cuda/cudnn/paths.h"
#include "tessera/tensor/kernels/cuda/windows/attention_layout.h"
#include "tessera/tensor/kernels/cuda/windows/conv_element.h"
#include "tessera/tensor/kernels/math/random_math.h"

namespace tessera::cuda {
namespace {

constexpr CudnnFacts kHopper{.version = 91900, .major = 9};

// Operands whose memory is never read.
ConstView operand(const Shape& shape, DType dtype = DType::kBF16) {
  ConstView x;
  x.data = reinterpret_cast<const void*>(std::uintptr_t{4096});
  x.dtype = dtype;
  x.shape = shape;
  x.strides = contiguous_strides(shape);
  return x;
}
View result(const Shape& shape, DType dtype = DType::kBF16) {
  const ConstView x = operand(shape, dtype);
  View y;
  y.data = const_cast<void*>(x.data);
  y.dtype = dtype;
  y.shape = x.shape;
  y.strides = x.strides;
  return y;
}

AttentionKernel::Args causal_attention() {
  AttentionKernel::Args a;
  a.q = operand({2, 4, 64, 32});
  a.k = a.v = operand({2, 2, 64, 32});
  a.out = result({2, 4, 64, 32});
  a.log_sum_exp = result({2, 4, 64}, DType::kF32);
  a.rule.causal = true;
  return a;
}

AttentionBackwardKernel::Args causal_attention_backward() {
  const AttentionKernel::Args forward = causal_attention();
  AttentionBackwardKernel::Args a;
  a.q = forward.q;
  a.k = a.v = forward.k;
  a.out = a.dout = operand({2, 4, 64, 32});
  a.dq = result({2, 4, 64, 32});
  a.dk = a.dv = result({2, 2, 64, 32});
  a.rule = forward.rule;
  return a;
}

AttentionPath path(const AttentionKernel::Args& a, const CudnnFacts& facts = kHopper) {
  return attention_path(a, facts);
}

}  // namespace

TEST_CASE("cuDNN computes attention that it takes with our meaning") {
  AttentionKernel::Args a = causal_attention();
  CHECK(path(a) == AttentionPath::kCudnn);
  a.rule.causal = false;
  CHECK(path(a) == AttentionPath::kCudnn);
  a.q = operand({2, 4, 16, 32});
  a.out = result({2, 4, 16, 32});
  a.rule.causal = true;
  a.rule.diagonal = 48;  // ends at the last key
  CHECK(path(a) == AttentionPath::kCudnn);
}

TEST_CASE("our own kernels compute the attention that cuDNN does not take") {
  CHECK(path(causal_attention(), {}) == AttentionPath::kPlain);
  CHECK(path(causal_attention(), {.version = 91900, .major = 7}) == AttentionPath::kPlain);
  CHECK(path(causal_attention(), {.version = 90000, .major = 9}) == AttentionPath::kPlain);
  const auto changed = [](auto change) {
    AttentionKernel::Args a = causal_attention();
    change(a);
    return path(a);
  };
  using Args = AttentionKernel::Args;
  CHECK(changed([](Args& a) { a.rule.dropout_p = 0.1; }) == AttentionPath::kPlain);
  CHECK(changed([](Args& a) { a.rule.mask = operand({2, 4, 64, 64}); }) == AttentionPath::kPlain);
  CHECK(changed([](Args& a) { a.rule.diagonal = 3; }) == AttentionPath::kPlain);
  CHECK(changed([](Args& a) { a.rule.diagonal = -3; }) == AttentionPath::kPlain);
  CHECK(changed([](Args& a) { a.q.dtype = DType::kF32; }) == AttentionPath::kPlain);
  CHECK(changed([](Args& a) { a.q.data = reinterpret_cast<const void*>(std::uintptr_t{4098}); }) ==
        AttentionPath::kPlain);
  CHECK(changed([](Args& a) { a.k.strides[3] = 2; }) == AttentionPath::kPlain);
  CHECK(changed([](Args& a) { a.v.strides[2] = 36; }) == AttentionPath::kPlain);
  CHECK(changed([](Args& a) {
          a.q = operand({2, 4, 64, 136});
          a.k = operand({2, 2, 64, 136});
        }) == AttentionPath::kPlain);
  CHECK(changed([](Args& a) { a.k = a.v = operand({2, 2, 0, 32}); }) == AttentionPath::kPlain);
  CHECK(changed([](Args& a) {
          a.q = operand({2, 4, 1, 32});
          a.out = result({2, 4, 1, 32});
          a.rule.diagonal = 63;
        }) == AttentionPath::kPlain);
}

TEST_CASE("cuDNN computes the derivative of attention where the order of its sums is fixed") {
  const AttentionBackwardKernel::Args a = causal_attention_backward();
  CHECK(attention_path(a, kHopper) == AttentionPath::kCudnn);
  CHECK(attention_path(a, {.version = 91900, .major = 8}) == AttentionPath::kCudnn);
  CHECK(attention_path(a, {.version = 91900, .major = 10}) == AttentionPath::kPlain);
  AttentionBackwardKernel::Args any_order = a;
  any_order.fixed_order = false;
  CHECK(attention_path(any_order, kHopper) == AttentionPath::kCudnn);
  CHECK(attention_path(any_order, {.version = 91900, .major = 10}) == AttentionPath::kCudnn);
  CHECK(path(causal_attention(), {.version = 91900, .major = 10}) == AttentionPath::kCudnn);
  AttentionBackwardKernel::Args expanded = a;
  expanded.dout.strides = {0, 0, 0, 0};
  CHECK(attention_path(expanded, kHopper) == AttentionPath::kPlain);
}

TEST_CASE("a reason says what keeps cuDNN from computing attention") {
  const auto reason = [](const CudnnFacts& facts, auto change) -> std::string {
    AttentionKernel::Args a = causal_attention();
    change(a);
    const char* text = reason_against_cudnn(a, facts);
    return text != nullptr ? text : "";
  };
  using Args = AttentionKernel::Args;
  const auto nothing = [](Args&) {};
  CHECK(reason(kHopper, nothing).empty());
  CHECK(reason({}, nothing).find("built without cuDNN") != std::string::npos);
  CHECK(reason({.version = 91300, .major = 9}, nothing).find("older than 9.14") !=
        std::string::npos);
  CHECK(reason({.version = 91900, .major = 7}, nothing).find("GPU is older") != std::string::npos);
  CHECK(reason(kHopper, [](Args& a) { a.rule.dropout_p = 0.1; }).find("dropout 0") !=
        std::string::npos);
  CHECK(reason(kHopper, [](Args& a) {
          a.rule.mask = operand({64, 64});
        }).find("no mask") != std::string::npos);
  CHECK(reason(kHopper, [](Args& a) { a.rule.diagonal = 3; }).find("diagonal") !=
        std::string::npos);
  CHECK(reason(kHopper, [](Args& a) { a.v.strides[2] = 36; }).find("16 bytes") !=
        std::string::npos);
  const AttentionBackwardKernel::Args backward = causal_attention_backward();
  CHECK(std::string(reason_against_cudnn(backward, {.version = 91900, .major = 10}))
            .find("deterministic mode") != std::string::npos);
}

TEST_CASE("cuDNN needs one stride for all dims of a batch") {
  const Shape shape{3, 5, 4, 64, 32};
  CHECK(detail::batch_stride(shape, contiguous_strides(shape)) == 4 * 64 * 32);
  Shape strides = contiguous_strides(shape);
  strides[0] *= 2;
  CHECK(detail::batch_stride(shape, strides) == -1);
  CHECK(detail::batch_stride({1, 5, 4, 64, 32}, strides) == 4 * 64 * 32);
  CHECK(detail::batch_stride({4, 64, 32}, contiguous_strides({4, 64, 32})) == 0);
}

TEST_CASE("every tile of attention is one block's, the last rows first") {
  const AttentionUnits units = attention_units(2, 3, 130, 260, DType::kF32);
  CHECK(units.tiles == 3);
  CHECK(units.chunks == 3);
  CHECK(units.count() == 2 * 3 * 3 * 3);
  std::set<std::vector<std::int64_t>> seen;
  std::int64_t before = units.tiles;
  for (std::int64_t i = 0; i < units.count(); ++i) {
    const AttentionPlace place = attention_place(units, i);
    CHECK(place.tile <= before);
    before = place.tile;
    seen.insert({place.batch, place.head, place.tile, place.chunk});
  }
  CHECK(static_cast<std::int64_t>(seen.size()) == units.count());
  CHECK(attention_units(1, 1, 33, 64, DType::kF64).tiles == 2);
}

TEST_CASE("a causal rule says which keys and queries meet") {
  AttentionRule rule;
  rule.causal = true;
  rule.diagonal = 3;
  const ScoreRule<float> causal = score_rule<float>(rule);
  CHECK(visible_keys(causal, 1, 10) == 4);
  CHECK(visible_keys(causal, 9, 10) == 10);
  CHECK(first_query(causal, 2) == 0);
  CHECK(first_query(causal, 8) == 5);
  rule.diagonal = -5;
  CHECK(visible_keys(score_rule<float>(rule), 2, 10) == 0);
}

TEST_CASE("factors of dropout are those of the positions") {
  AttentionRule rule;
  rule.dropout_p = 0.4;
  rule.key = 99;
  rule.position_strides = {1000, 100, 10, 1};
  const ScoreRule<float> drops = score_rule<float>(rule);
  for (const std::int64_t position : {0, 1, 2, 3, 7, 100}) {
    const Pack<float> factors = keep_factors(drops, position);
    for (int i = 0; i < Pack<float>::kCount; ++i) {
      const auto at = static_cast<std::uint64_t>(position + i);
      const float number = random::uniforms(random::philox(99, at / 4), 0.0f).n[at % 4];
      CHECK(factors.values[i] == (number >= 0.4f ? static_cast<float>(1 / (1 - 0.4)) : 0.0f));
    }
  }
}

TEST_CASE("the derivative of attention is cut so that scratch stays small") {
  const AttentionSlices whole = attention_slices(8, 4, 2, 1024 * 1024, std::int64_t{1} << 30);
  CHECK(whole.batch == 8);
  CHECK(whole.kv_heads == 4);
  const AttentionSlices entries = attention_slices(8, 4, 2, 1024 * 1024, std::int64_t{40} << 20);
  CHECK(entries.batch == 2);
  CHECK(entries.kv_heads == 4);
  const AttentionSlices heads = attention_slices(8, 6, 1, 1024 * 1024, std::int64_t{7} << 20);
  CHECK(heads.batch == 1);
  CHECK(heads.kv_heads == 3);
  CHECK(attention_slices(8, 6, 1, 1024 * 1024, 1).kv_heads == 1);
}

TEST_CASE("which output a tap of a convolution carries an input to") {
  const ConvAxisView axis{.in = 9, .out = 4, .kernel = 3, .stride = 2, .padding = 1, .dilation = 2};
  for (std::int64_t at = 0; at < axis.in; ++at) {
    for (std::int64_t tap = 0; tap < axis.kernel; ++tap) {
      std::int64_t expected = -1;
      for (std::int64_t o = 0; o < axis.out; ++o)
        if (o * axis.stride - axis.padding + tap * axis.dilation == at) expected = o;
      CHECK(conv_output_index(axis, at, tap) == expected);
    }
  }
}

TEST_CASE("a plan is made once for each problem, by whatever thread comes first") {
  PlanCache<int, int> cache;
  std::atomic<int> made = 0;
  const auto get = [&](int problem) {
    return cache.get(problem, [&]() -> std::unique_ptr<int> {
      ++made;
      return problem < 0 ? nullptr : std::make_unique<int>(2 * problem);
    });
  };
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) right += *get(i % 10) == 2 * (i % 10) ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(right == 400);
  CHECK(made == 10);
  CHECK(get(-1) == nullptr);
  CHECK(get(-1) == nullptr);
  CHECK(made == 11);  // "no plan" is cached too
}

TEST_CASE("cuDNN is asked for convolutions whose extents have 32 bits") {
  ConvGeometry g;
  g.images = 4;
  CHECK(conv_path(g, kHopper) == ConvPath::kCudnn);
  CHECK(conv_path(g, {}) == ConvPath::kPlain);
  g.images = std::int64_t{1} << 32;
  CHECK(conv_path(g, kHopper) == ConvPath::kPlain);
  g.images = 0;
  CHECK(conv_path(g, kHopper) == ConvPath::kPlain);
}

}  // namespace tessera::cuda
