// How fast attention is on a GPU: our operation, and our own kernels, against the launch of cuDNN
// that the operation stands on. A launch finds the plan in our cache and binds its operands; it
// makes no result and checks nothing. Graph and plan are the same on both sides: `ratio` shows what
// the operation adds, not whether another graph or plan would be faster.
//
//     tools/bazel run --config=cuda //tools:bench_gpu_attention
//
// A line of JSON for each problem: milliseconds (medians of paired runs) and ratios, above 1 where
// ours is faster: `ratio` of the operation, which has the goal, `plain_ratio` of our own kernels.
// Without a GPU: "skipped: no GPU".
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <vector>

#include "tessera/tensor/device.h"
#include "tessera/tensor/kernels/attention.h"
#include "tessera/tensor/kernels/cuda/attention_path.h"
#include "tessera/tensor/kernels/cuda/attention_plain.h"
#include "tessera/tensor/kernels/cuda/cudnn_attention.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops.h"
#include "tessera/tensor/stream.h"
#include "tessera/tools/bench_gpu_support.h"

namespace tessera {
namespace {

constexpr BenchRun kRun;
constexpr Device kGpu = kRun.device;

struct Problem {
  std::int64_t batch, heads, kv_heads, length, dim;
  bool causal;
};

constexpr Problem kProblems[] = {
    {8, 12, 12, 1024, 64, true},  {4, 32, 8, 2048, 128, true},  {2, 32, 8, 4096, 128, true},
    {8, 16, 16, 1024, 64, false}, {1, 16, 16, 8192, 128, true},
};

// [batch, heads, length, dim], as a projection gives it.
Tensor operand(const Problem& p, std::int64_t heads, const char* name) {
  const Shape shape = {p.batch, p.length, heads, p.dim};
  return random_tensor(shape, {.dtype = DType::kBF16, .device = kGpu}, name).transpose(1, 2);
}

Tensor scratch_tensor(std::size_t bytes) {
  return Tensor::empty({static_cast<std::int64_t>(bytes) + 1},
                       {.dtype = DType::kU8, .device = kGpu});
}
Workspace workspace(const Tensor& scratch) {
  const View view = write(scratch);
  return {.data = view.data, .bytes = static_cast<std::size_t>(scratch.numel())};
}

void report(const Problem& p, const char* pass, const Comparison& op, const Comparison& plain) {
  fmt::print(
      "{{\"bench\": \"attention\", \"pass\": \"{}\", \"batch\": {}, \"heads\": {}, "
      "\"kv_heads\": {}, \"length\": {}, \"dim\": {}, \"causal\": {}, \"op_ms\": {:.4f}, "
      "\"cudnn_ms\": {:.4f}, \"ratio\": {:.3f}, \"goal\": 0.95, \"plain_ms\": {:.4f}, "
      "\"plain_ratio\": "
      "{:.3f}}}\n",
      pass, p.batch, p.heads, p.kv_heads, p.length, p.dim, p.causal, op.ours * 1e-3,
      op.theirs * 1e-3, op.ratio, plain.ours * 1e-3, plain.ratio);
  std::fflush(stdout);
}

void refused(const Problem& p, const char* pass) {
  fmt::print(
      "{{\"bench\": \"attention\", \"pass\": \"{}\", \"length\": {}, \"skipped\": \"cuDNN has no "
      "plan\"}}\n",
      pass, p.length);
}

// One problem's operands and what the forward gave.
struct Setup {
  AttentionInputs in;
  Tensor dout;
  AttentionOptions options;
  AttentionResult result;
  AttentionRule rule;

  explicit Setup(const Problem& p)
      : in{.q = operand(p, p.heads, "q"),
           .k = operand(p, p.kv_heads, "k"),
           .v = operand(p, p.kv_heads, "v")},
        dout(operand(p, p.heads, "dout")) {
    options.causal = p.causal;
    result = scaled_dot_product_attention(in.q, in.k, in.v, options);
    rule.causal = p.causal;
    rule.scale = 1 / std::sqrt(static_cast<double>(p.dim));
  }
};

void run_forward(const Problem& p, const Setup& s) {
  const AttentionKernel::Args args{.q = read(s.in.q),
                                   .k = read(s.in.k),
                                   .v = read(s.in.v),
                                   .out = write(s.result.output),
                                   .log_sum_exp = write(s.result.log_sum_exp),
                                   .rule = s.rule};
  const auto bytes = cuda::cudnn_facts().version > 0 ? cuda::cudnn_attention_bytes(args)
                                                     : std::optional<std::size_t>{};
  if (!bytes) return refused(p, "forward");
  const Tensor scratch = scratch_tensor(*bytes);
  const auto stream = current_stream(kGpu).cuda_handle();
  const auto launch = [&] { cuda::cudnn_attention(stream, args, workspace(scratch)); };
  const auto op = [&] { scaled_dot_product_attention(s.in.q, s.in.k, s.in.v, s.options); };
  const auto plain = [&] { cuda::plain_attention(stream, args); };
  report(p, "forward", compare(kRun, op, launch), compare(kRun, plain, launch));
}

void run_backward(const Problem& p, const Setup& s) {
  const AttentionInputs gradients =
      scaled_dot_product_attention_backward(s.dout, s.in, s.result, s.options);
  const AttentionBackwardKernel::Args args{.dout = read(s.dout),
                                           .q = read(s.in.q),
                                           .k = read(s.in.k),
                                           .v = read(s.in.v),
                                           .out = read(s.result.output),
                                           .log_sum_exp = read(s.result.log_sum_exp),
                                           .dq = write(gradients.q),
                                           .dk = write(gradients.k),
                                           .dv = write(gradients.v),
                                           .rule = s.rule};
  const auto bytes = cuda::cudnn_facts().version > 0 ? cuda::cudnn_attention_bytes(args)
                                                     : std::optional<std::size_t>{};
  if (!bytes) return refused(p, "backward");
  const Tensor scratch =
      scratch_tensor(std::max(*bytes, cuda::plain_attention_backward_bytes(args)));
  const auto stream = current_stream(kGpu).cuda_handle();
  const auto launch = [&] { cuda::cudnn_attention(stream, args, workspace(scratch)); };
  const auto op = [&] { scaled_dot_product_attention_backward(s.dout, s.in, s.result, s.options); };
  const auto plain = [&] { cuda::plain_attention_backward(stream, args, workspace(scratch)); };
  report(p, "backward", compare(kRun, op, launch), compare(kRun, plain, launch));
}

}  // namespace
}  // namespace tessera

int main() {
  using namespace tessera;
  if (cuda_device_count() == 0) {
    fmt::print("skipped: no GPU\n");
    return 0;
  }
  for (const Problem& problem : kProblems) {
    const Setup setup(problem);
    run_forward(problem, setup);
    run_backward(problem, setup);
  }
  return 0;
}
