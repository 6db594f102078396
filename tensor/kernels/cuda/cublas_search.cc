#include "tessera/tensor/kernels/cuda/cublas_search.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "tessera/tensor/cuda/check_cuda.h"
#include "tessera/tensor/kernels/cuda/cublas_descriptors.h"

namespace tessera::cuda {
namespace {

constexpr int kMostAlgorithms = 512;
constexpr double kRoundMicroseconds = 3000;  // of one timing
constexpr int kFinalists = 5, kRounds = 15;

void check(cudaError_t error, const char* what) { check_cuda(error, "bench_gpu_matmul", what); }

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// So many calls in a row, captured.
class Timed {
 public:
  template <class Body>
  Timed(CudaStream stream, int calls, const Body& body) : stream_(stream), calls_(calls) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
    for (int i = 0; i < calls; ++i) body();
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    const cudaError_t made = cudaGraphInstantiate(&graph_, graph, 0);
    cudaGraphDestroy(graph);
    check(made, "cudaGraphInstantiate");
    check(cudaEventCreate(&begin_), "cudaEventCreate");
    check(cudaEventCreate(&end_), "cudaEventCreate");
  }
  Timed(Timed&& other) noexcept
      : stream_(other.stream_),
        calls_(other.calls_),
        graph_(std::exchange(other.graph_, nullptr)),
        begin_(std::exchange(other.begin_, nullptr)),
        end_(std::exchange(other.end_, nullptr)) {}
  ~Timed() {
    if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
    if (begin_ != nullptr) cudaEventDestroy(begin_);
    if (end_ != nullptr) cudaEventDestroy(end_);
  }

  // Microseconds of one call.
  double run() const {
    float milliseconds = 0;
    check(cudaEventRecord(begin_, stream_), "cudaEventRecord");
    check(cudaGraphLaunch(graph_, stream_), "cudaGraphLaunch");
    check(cudaEventRecord(end_, stream_), "cudaEventRecord");
    check(cudaEventSynchronize(end_), "cudaEventSynchronize");
    check(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
    return 1000.0 * milliseconds / calls_;
  }

 private:
  CudaStream stream_;
  int calls_;
  cudaGraphExec_t graph_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

// The quickest of these algorithms: a first look at each, and a longer one at the best of them.
LtAlgorithm best_of(const std::vector<LtAlgorithm>& all, CudaStream stream, int calls,
                    const auto& run) {
  std::vector<std::pair<double, std::size_t>> times;
  for (std::size_t i = 0; i < all.size(); ++i) {
    run(all[i]);  // loads its code
    const Timed timed(stream, std::max(1, calls / 4), [&] { run(all[i]); });
    timed.run();
    times.emplace_back(std::min(timed.run(), timed.run()), i);
  }
  std::sort(times.begin(), times.end());
  times.resize(std::min<std::size_t>(times.size(), kFinalists));
  for (auto& [time, index] : times) {
    const Timed timed(stream, calls, [&] { run(all[index]); });
    std::vector<double> rounds;
    for (int round = 0; round < kRounds; ++round) rounds.push_back(timed.run());
    time = median(rounds);
  }
  return all[std::min_element(times.begin(), times.end())->second];
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
  const LtAlgorithm best = best_of(all, stream, calls, theirs);
  const Timed our_turn(stream, calls, ours), their_turn(stream, calls, [&] { theirs(best); });
  std::vector<double> our_times, their_times;
  for (int round = 0; round < 2 * kRounds; ++round) {
    our_times.push_back(our_turn.run());
    their_times.push_back(their_turn.run());
  }
  return {.ours = median(our_times),
          .best = median(their_times),
          .algorithms = static_cast<int>(all.size())};
}

}  // namespace tessera::cuda
