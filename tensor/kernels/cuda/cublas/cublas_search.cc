#include "tessera/tensor/kernels/cuda/cublas/cublas_search.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "tessera/tensor/cuda/check_cuda.h"
#include "tessera/tensor/kernels/cuda/cublas/cublas_descriptors.h"
#include "tessera/tensor/kernels/cuda/cublas/stream_watch.h"

namespace tessera::cuda {
namespace {

constexpr int kMostAlgorithms = 512;
constexpr double kRoundMicroseconds = 3000;  // duration of one timing
constexpr int kFinalists = 5, kFinalRounds = 7, kTurns = 30;
constexpr std::chrono::seconds kLookTime{1};  // for trying all algorithms
// An algorithm whose single run takes longer than this factor times the fastest one, plus the gap
// of a launch, is not timed further.
constexpr double kPlainlySlower = 1.5, kLaunchMicroseconds = 20;

constexpr const char* kWhere = "bench_gpu_matmul";

void check(cudaError_t error, const char* what) { check_cuda(error, kWhere, what); }

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// A graph of this many consecutive calls.
class Timed {
 public:
  template <class Body>
  Timed(CudaStream stream, int calls, const Body& body)
      : stream_(stream), calls_(calls), watch_(stream, kWhere) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
    for (int i = 0; i < calls; ++i) body();
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    const cudaError_t made = cudaGraphInstantiate(&graph_, graph, 0);
    cudaGraphDestroy(graph);
    check(made, "cudaGraphInstantiate");
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;
  ~Timed() { cudaGraphExecDestroy(graph_); }

  // Microseconds of one call.
  double run() const {
    const auto launch = [&] { check(cudaGraphLaunch(graph_, stream_), "cudaGraphLaunch"); };
    return watch_.time(launch) / calls_;
  }

 private:
  CudaStream stream_;
  int calls_;
  StreamWatch watch_;
  cudaGraphExec_t graph_ = nullptr;
};

// First timings: microseconds and indices of the algorithms that are not clearly slow, fastest
// first.
struct Looks {
  std::vector<std::pair<double, std::size_t>> times;
  int tried = 0;
};

Looks look_at(const std::vector<LtAlgorithm>& all, CudaStream stream, int calls, const auto& run) {
  const StreamWatch watch(stream, kWhere);
  Looks looks;
  double quickest = std::numeric_limits<double>::infinity();
  const auto end = std::chrono::steady_clock::now() + kLookTime;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i > 0 && std::chrono::steady_clock::now() >= end) break;
    run(all[i]);  // loads its code
    const double alone = watch.time([&] { run(all[i]); });
    ++looks.tried;
    quickest = std::min(quickest, alone);
    if (alone > kPlainlySlower * quickest + kLaunchMicroseconds) continue;
    const Timed timed(stream, calls, [&] { run(all[i]); });
    timed.run();
    looks.times.emplace_back(std::min(timed.run(), timed.run()), i);
  }
  std::sort(looks.times.begin(), looks.times.end());
  return looks;
}

// The fastest of the algorithms with the best first timings.
std::size_t best_of(Looks looks, CudaStream stream, int calls, const auto& run) {
  auto& times = looks.times;
  times.resize(std::min<std::size_t>(times.size(), kFinalists));
  for (auto& [time, index] : times) {
    const Timed timed(stream, calls, [&, i = index] { run(i); });
    std::vector<double> rounds;
    for (int round = 0; round < kFinalRounds; ++round) rounds.push_back(timed.run());
    time = median(rounds);
  }
  return std::min_element(times.begin(), times.end())->second;
}

}  // namespace

ProductTimes compare_with_best(CudaStream stream, const MatmulKernel::Args& args,
                               Workspace workspace) {
  const LtProduct product = plan_matmul(args).plain;
  const LtOperands operands = {.first = args.b.data,
                               .second = args.a.data,
                               .result = args.c.data,
                               .alpha = args.alpha,
                               .beta = args.beta};
  LtOperation operation(product, operands);
  const std::vector<LtAlgorithm> all =
      propose(current_handle(), key_of(product, operands, workspace), operation,
              {.most = kMostAlgorithms, .reductions = CUBLASLT_REDUCTION_SCHEME_MASK});
  const auto ours = [&] {
    MatmulKernel::cuda(stream, args,
                       {.data = workspace.data, .bytes = MatmulKernel::cuda_workspace(args)});
  };
  const auto theirs = [&](const LtAlgorithm& algorithm) {
    multiply(current_handle(), stream, algorithm, operation, operands, workspace);
  };
  ours();
  const double once = Timed(stream, 8, ours).run();
  const int calls = static_cast<int>(std::clamp(kRoundMicroseconds / once, 4.0, 1000.0));
  const Looks looks = look_at(all, stream, std::max(1, calls / 4), theirs);
  const auto numbered = [&](std::size_t index) { theirs(all[index]); };
  const LtAlgorithm& best = all[best_of(looks, stream, calls, numbered)];
  const Timed our_turn(stream, calls, ours), their_turn(stream, calls, [&] { theirs(best); });
  std::vector<double> our_times, their_times;
  for (int turn = 0; turn < kTurns; ++turn) {
    our_times.push_back(our_turn.run());
    their_times.push_back(their_turn.run());
  }
  return {.ours = median(our_times),
          .best = median(their_times),
          .algorithms = looks.tried,
          .proposed = static_cast<int>(all.size())};
}

}  // namespace tessera::cuda
