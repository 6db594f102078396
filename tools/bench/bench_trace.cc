// The cost of tracing: host nanoseconds for a small kernel without a trace, with a trace in host
// order and with a timed one, on an inline and on a queued stream. Best of several rounds.
//
//     tools/bazel run //tools/bench:bench_trace
#include <fmt/format.h>

#include <algorithm>

#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tensor/tensor.h"
#include "tessera/tensor/trace.h"

namespace {

using namespace tessera;

constexpr int kKernels = 20'000;
constexpr int kRounds = 15;

// One round: the time to issue the kernels and to wait for them.
double round(const DeviceStream& stream, const Tensor& x, ExecutionTrace* trace) {
  current_rank_context()->set_trace(trace);
  const std::int64_t begin = trace_clock();
  for (int i = 0; i < kKernels; ++i) zero_(x);
  stream.synchronize();
  const std::int64_t end = trace_clock();
  current_rank_context()->set_trace(nullptr);
  if (trace != nullptr) trace->clear();
  return static_cast<double>(end - begin) / kKernels;
}

void measure(StreamKind kind, const char* name) {
  const DeviceStream stream = DeviceStream::create(kCpu, kind, "bench");
  const StreamGuard guard(stream);
  const Tensor x = Tensor::empty({16});
  ExecutionTrace plain;
  ExecutionTrace timed({.timed = true});
  double best[] = {1e9, 1e9, 1e9};
  for (int i = 0; i < kRounds; ++i) {
    ExecutionTrace* const traces[] = {nullptr, &plain, &timed};
    for (int kind_of_trace = 0; kind_of_trace < 3; ++kind_of_trace)
      best[kind_of_trace] = std::min(best[kind_of_trace], round(stream, x, traces[kind_of_trace]));
  }
  fmt::print("{:8} no trace {:6.0f} ns   in host order {:6.0f} ns   timed {:6.0f} ns a kernel\n",
             name, best[0], best[1], best[2]);
}

}  // namespace

int main() {
  measure(StreamKind::kInline, "inline");
  measure(StreamKind::kQueued, "queued");
}
