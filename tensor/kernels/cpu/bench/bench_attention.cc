// The speed and the memory of attention, relative to a product, softmax and a product:
//
//     tools/bazel run //tensor/kernels/cpu:bench_attention
//
// A ratio above 1 is faster than these operations. Both sides alternate, and the best of many runs
// counts, so that a busy machine affects both alike.
#include <chrono>
#include <cstdio>
#include <memory>

#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/rank_context.h"

namespace tessera {
namespace {

constexpr int kRuns = 9;

template <class Body>
double seconds(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Problem {
  std::int64_t heads, length, dim;
  bool causal;
};

Tensor spread(const Shape& shape, const char* name) {
  const Tensor x = Tensor::empty(shape);
  random::fill_normal(x, random::named_key(1, name), random::whole(shape), 0, 1);
  return x;
}

// For each head: scores, probabilities and output as full matrices.
void composed(const AttentionInputs& in, const Tensor& mask, const Tensor& out) {
  for (std::int64_t h = 0; h < in.q.dim(0); ++h) {
    Tensor scores = mul(matmul(in.q.select(0, h), in.k.select(0, h).transpose(0, 1)), 0.125);
    if (mask.defined()) scores = add(scores, mask);
    matmul_into(out.select(0, h), softmax(scores), in.v.select(0, h), {});
  }
}

void composed_backward(const AttentionInputs& in, const Tensor& dout, const Tensor& mask,
                       const AttentionInputs& gradients) {
  for (std::int64_t h = 0; h < in.q.dim(0); ++h) {
    const Tensor q = in.q.select(0, h), k = in.k.select(0, h), v = in.v.select(0, h),
                 d = dout.select(0, h);
    Tensor scores = mul(matmul(q, k.transpose(0, 1)), 0.125);
    if (mask.defined()) scores = add(scores, mask);
    const Tensor p = softmax(scores), dp = matmul(d, v.transpose(0, 1));
    const Tensor ds = mul(mul(p, sub(dp, sum(mul(p, dp), {1}, true))), 0.125);
    matmul_into(gradients.v.select(0, h), p.transpose(0, 1), d, {});
    matmul_into(gradients.k.select(0, h), ds.transpose(0, 1), q, {});
    matmul_into(gradients.q.select(0, h), ds, k, {});
  }
}

Tensor causal_mask(std::int64_t n) {
  std::vector<float> mask(static_cast<std::size_t>(n * n));
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = i + 1; j < n; ++j) mask[static_cast<std::size_t>(i * n + j)] = -1e30f;
  }
  return Tensor::from_vector(mask, {n, n});
}

template <class Body>
std::int64_t peak_bytes(const Body& body) {
  MemoryCounters& memory = current_rank_context()->memory();
  memory.reset_peak();
  const std::int64_t before = memory.peak_total();
  body();
  return memory.peak_total() - before;
}

void compare(const Problem& p) {
  const Shape shape{p.heads, p.length, p.dim};
  const AttentionInputs in{
      .q = spread(shape, "q"), .k = spread(shape, "k"), .v = spread(shape, "v")};
  const Tensor dout = spread(shape, "dout"), out = zeros(shape),
               mask = p.causal ? causal_mask(p.length) : Tensor();
  const AttentionInputs gradients{.q = zeros(shape), .k = zeros(shape), .v = zeros(shape)};
  const AttentionOptions options{.causal = p.causal};
  const AttentionResult result = scaled_dot_product_attention(in.q, in.k, in.v, options);
  const auto forward = [&] { scaled_dot_product_attention(in.q, in.k, in.v, options); };
  const auto backward = [&] { scaled_dot_product_attention_backward(dout, in, result, options); };
  double ours = 1e9, ours_back = 1e9, plain = 1e9, plain_back = 1e9;
  for (int run = 0; run < kRuns; ++run) {
    ours = std::min(ours, seconds(forward));
    plain = std::min(plain, seconds([&] { composed(in, mask, out); }));
    ours_back = std::min(ours_back, seconds(backward));
    plain_back =
        std::min(plain_back, seconds([&] { composed_backward(in, dout, mask, gradients); }));
  }
  const double products = 4.0 * static_cast<double>(p.heads * p.length * p.length * p.dim);
  std::printf(
      "  %2lld heads of %5lld x %3lld%s  forward %8.2f ms %5.0f GFLOP/s ratio %.2f, %6.2f MB   "
      "backward %8.2f ms %5.0f GFLOP/s ratio %.2f, %6.2f MB\n",
      static_cast<long long>(p.heads), static_cast<long long>(p.length),
      static_cast<long long>(p.dim), p.causal ? " causal" : "       ", ours * 1e3,
      products / ours * 1e-9, plain / ours, static_cast<double>(peak_bytes(forward)) * 1e-6,
      ours_back * 1e3, products * 2.5 / ours_back * 1e-9, plain_back / ours_back,
      static_cast<double>(peak_bytes(backward)) * 1e-6);
}

void compare_all() {
  for (bool causal : {false, true}) {
    for (const auto& [heads, length] :
         {std::pair{32, 64}, {16, 128}, {16, 256}, {8, 512}, {8, 1024}, {4, 2048}, {2, 4096}}) {
      compare({heads, length, 64, causal});
    }
  }
  compare({8, 1024, 128, false});
}

}  // namespace
}  // namespace tessera

int main() {
  for (int threads : {1, 2}) {
    std::printf("---- %d thread%s, f32\n", threads, threads == 1 ? "" : "s");
    tessera::RankScope scope(std::make_shared<tessera::RankContext>(-1, 1, threads));
    tessera::compare_all();
  }
}
