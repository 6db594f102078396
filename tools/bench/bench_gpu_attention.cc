// Attention on a GPU compared with cuDNN called directly: every plan that cuDNN's heuristics offer
// for our graphs is timed by plain cudnnBackendExecute with operands bound beforehand. The fastest
// is the peer. Backward has two graphs: sums in any order, and in a fixed one (determinism.h).
//
//     tools/bazel run --config=cuda //tools/bench:bench_gpu_attention [-- --smoke]
//
// Prints a line of JSON for each problem and pass: milliseconds (medians of runs in pairs) and
// ratios to the peer, above 1 where ours is faster:
//
//     ratio         of the operation; this one has the goal
//     launch_ratio  of our launch alone: plan from our cache, operands bound each time
//     plain_ratio   of our own kernels
//     fixed_ratio   of our launch in deterministic mode, which forward does not change
//     plans         number of plans that need at most 8 GiB of scratch memory; `best` is the peer's
//                   index among them, in cuDNN's order, and `best_plan` its name; `failed` could not
//                   be executed, which is an error if it is all of them
//     chosen        index of the plan that we use; -1: our slices use another one
//     slices        number of executions that ours needs; the peer needs one
//
// We reject the plans before the chosen one for their numerics: they may be nondeterministic, or
// sum with lower precision. Graphs with other operations than ours are not searched;
// bench_ops_torch.py compares with PyTorch's. --smoke: small problems and no times. Without a
// GPU: "skipped: no GPU".
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tessera/tensor/determinism.h"
#include "tessera/tensor/device.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/kernels/attention.h"
#include "tessera/tensor/kernels/cuda/cudnn/cudnn_attention_offers.h"
#include "tessera/tensor/kernels/cuda/cudnn/cudnn_kernels.h"
#include "tessera/tensor/kernels/cuda/windows/plain.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tools/bench/bench_gpu_support.h"

namespace tessera {
namespace {

using cuda::AttentionOffer;

// Plans that need more are left out.
constexpr std::size_t kMostScratch = std::size_t{8} << 30;

struct Problem {
  std::int64_t batch, heads, kv_heads, length, dim;
  bool causal;
};

std::vector<Problem> problems(const BenchRun& run) {
  if (run.smoke) return {{2, 4, 2, 32, 16, true}, {1, 2, 2, 24, 8, false}};
  return {{8, 12, 12, 1024, 64, true},
          {4, 32, 8, 2048, 128, true},
          {2, 32, 8, 4096, 128, true},
          {8, 16, 16, 1024, 64, false},
          {1, 16, 16, 8192, 128, true}};
}

// [batch, heads, length, dim], with the strides of a projection's result.
Tensor operand(const Problem& p, std::int64_t heads, const char* name) {
  const Shape shape = {p.batch, p.length, heads, p.dim};
  return random_tensor(shape, {.dtype = DType::kBF16, .device = default_device()}, name)
      .transpose(1, 2);
}

// One problem's operands and the results of forward.
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

// One pass: its operands, the operation, and our own kernels.
template <class Args>
struct Pass {
  const char* name;
  Args args;
  std::size_t plain_bytes;
  std::function<void()> op;
  std::function<void(CudaStream, Workspace)> plain;
};

// The fastest plan.
struct Best {
  std::size_t place = 0;
  std::function<void()> compute;
  int failed = 0;  // plans that were offered but cannot be executed
};
Best best_of(const BenchRun& run, const std::vector<AttentionOffer>& offers, Workspace scratch) {
  Best best;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t place = 0; place < offers.size(); ++place) {
    std::function<void()> compute;
    std::vector<double> times;
    try {
      compute = offers[place].bind(scratch);
      const int calls = calls_for(run, compute);
      for (int round = 0; round < run.pairs(); ++round)
        times.push_back(microseconds_per_call(run, calls, compute));
    } catch (const DeviceError&) {
      ++best.failed;
      if (best.failed == static_cast<int>(offers.size())) throw;
      continue;
    }
    if (median(times) >= least) continue;
    least = median(times);
    best.place = place;
    best.compute = compute;
  }
  return best;
}

std::string described(const Problem& p, const char* pass) {
  return fmt::format(
      "\"bench\": \"attention\", \"pass\": \"{}\", \"batch\": {}, \"heads\": {}, \"kv_heads\": {}, "
      "\"length\": {}, \"dim\": {}, \"causal\": {}",
      pass, p.batch, p.heads, p.kv_heads, p.length, p.dim, p.causal);
}

// The same operands in deterministic mode. Forward has a fixed order in every mode.
AttentionKernel::Args in_fixed_order(const AttentionKernel::Args& a) { return a; }
AttentionBackwardKernel::Args in_fixed_order(AttentionBackwardKernel::Args a) {
  a.fixed_order = true;
  return a;
}

template <class Args>
void measure(const BenchRun& run, const Problem& p, const Pass<Args>& pass) {
  const auto stream = current_stream(run.device).cuda_handle();
  const std::string what = described(p, pass.name);
  std::vector<AttentionOffer> offers = cuda::attention_offers(stream, pass.args);
  std::erase_if(offers, [](const AttentionOffer& x) { return x.bytes > kMostScratch; });
  const auto ours = cuda::cudnn_attention_plan(pass.args);
  if (offers.empty() || !ours) {
    fmt::print("{{{}, \"skipped\": \"cuDNN has no plan that fits\"}}\n", what);
    return;
  }
  const Args fixed = in_fixed_order(pass.args);
  std::size_t bytes = std::max({pass.plain_bytes, *cuda::cudnn_attention_bytes(pass.args),
                                cuda::cudnn_attention_bytes(fixed).value_or(0)});
  for (const AttentionOffer& offer : offers) bytes = std::max(bytes, offer.bytes);
  const Tensor memory = Tensor::empty({static_cast<std::int64_t>(bytes) + 1},
                                      {.dtype = DType::kU8, .device = run.device});
  const Workspace scratch{.data = write(memory).data, .bytes = bytes};
  const Best best = best_of(run, offers, scratch);
  const Comparison op = compare(run, pass.op, best.compute);
  const Comparison launch = compare(
      run, [&] { cuda::cudnn_attention(stream, pass.args, scratch); }, best.compute);
  const Comparison ordered = compare(
      run, [&] { cuda::cudnn_attention(stream, fixed, scratch); }, best.compute);
  const Comparison plain = compare(
      run, [&] { pass.plain(stream, scratch); }, best.compute);
  const auto chosen = std::find_if(offers.begin(), offers.end(),
                                   [&](const AttentionOffer& x) { return x.plan == ours->name; });
  print_row(
      run,
      fmt::format("{}, \"plans\": {}, \"failed\": {}, \"chosen\": {}, \"slices\": {}", what,
                  offers.size(), best.failed, chosen == offers.end() ? -1 : chosen - offers.begin(),
                  ours->executions),
      fmt::format("\"op_ms\": {:.4f}, \"best_ms\": {:.4f}, \"best\": {}, \"best_plan\": \"{}\", "
                  "\"ratio\": {:.3f}, \"goal\": 0.95, \"launch_ms\": {:.4f}, "
                  "\"launch_ratio\": {:.3f}, \"fixed_ms\": {:.4f}, \"fixed_ratio\": {:.3f}, "
                  "\"plain_ms\": {:.4f}, \"plain_ratio\": {:.3f}",
                  op.ours * 1e-3, op.theirs * 1e-3, best.place, offers[best.place].plan, op.ratio,
                  launch.ours * 1e-3, launch.ratio, ordered.ours * 1e-3, ordered.ratio,
                  plain.ours * 1e-3, plain.ratio));
}

Pass<AttentionKernel::Args> forward_pass(const Setup& s) {
  const AttentionKernel::Args args{.q = read(s.in.q),
                                   .k = read(s.in.k),
                                   .v = read(s.in.v),
                                   .out = write(s.result.output),
                                   .log_sum_exp = write(s.result.log_sum_exp),
                                   .rule = s.rule};
  return {.name = "forward",
          .args = args,
          .plain_bytes = 0,
          .op = [&s] { scaled_dot_product_attention(s.in.q, s.in.k, s.in.v, s.options); },
          .plain = [args](CudaStream stream, Workspace) { cuda::plain_attention(stream, args); }};
}

// `gradients`: the outputs.
Pass<AttentionBackwardKernel::Args> backward_pass(const Setup& s,
                                                  const AttentionInputs& gradients) {
  const AttentionBackwardKernel::Args args{.dout = read(s.dout),
                                           .q = read(s.in.q),
                                           .k = read(s.in.k),
                                           .v = read(s.in.v),
                                           .out = read(s.result.output),
                                           .log_sum_exp = read(s.result.log_sum_exp),
                                           .dq = write(gradients.q),
                                           .dk = write(gradients.k),
                                           .dv = write(gradients.v),
                                           .rule = s.rule,
                                           .fixed_order = deterministic()};
  return {.name = "backward",
          .args = args,
          .plain_bytes = cuda::plain_attention_backward_bytes(args),
          .op = [&s] { scaled_dot_product_attention_backward(s.dout, s.in, s.result, s.options); },
          .plain =
              [args](CudaStream stream, Workspace scratch) {
                cuda::plain_attention_backward(stream, args, scratch);
              }};
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;
  const BenchStart start = start_benchmark(argc, argv);
  if (!start.run) return start.exit_status;
  if (!start.run->device.is_cuda()) {  // the CPU has no cuDNN
    fmt::print("skipped: no GPU\n");
    return 0;
  }
  for (const Problem& problem : problems(*start.run)) {
    const Setup setup(problem);
    measure(*start.run, problem, forward_pass(setup));
    const AttentionInputs gradients =
        scaled_dot_product_attention_backward(setup.dout, setup.in, setup.result, setup.options);
    measure(*start.run, problem, backward_pass(setup, gradients));
  }
  return 0;
}
