#include "tessera/tensor/kernels/cuda/cublas/cublas_choice.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>

#include "tessera/tensor/cuda/check_cuda.h"
#include "tessera/tensor/cuda/device_guard.h"
#include "tessera/tensor/kernels/cuda/cublas/matmul_checksum.h"
#include "tessera/tensor/kernels/cuda/cublas/stream_watch.h"

namespace tessera::cuda {
namespace {

constexpr int kRounds = 3;
constexpr double kWorthOperations = 4e9;
// Products that run alone for a moment have a higher clock than in training, where power limits it: of
// small differences, those of 5 % among them, some turn around then (seen with Llama's on an H100).
constexpr double kClearlyFaster = 0.9;
constexpr int kCalls = 4;  // of a timing, without gaps

constexpr const char* kWhere = MatmulKernel::kName;

void check(cudaError_t error, const char* what) { check_cuda(error, kWhere, what); }

bool computes_as(const MeasuredAlgorithm& one, const MeasuredAlgorithm& other) {
  return one.splits == other.splits && one.checksum == other.checksum;
}

}  // namespace

bool worth_measuring(const LtProduct& product) {
  const std::int64_t inner = product.first_transposed ? product.first.rows : product.first.columns;
  return 2.0 * static_cast<double>(product.result.rows) *
             static_cast<double>(product.result.columns) * static_cast<double>(inner) *
             static_cast<double>(product.batch) >=
         kWorthOperations;
}

std::size_t fastest_equal(std::span<const MeasuredAlgorithm> all) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (computes_as(all[i], all[0]) && all[i].us < all[best].us) best = i;
  }
  return all[best].us < kClearlyFaster * all[0].us ? best : 0;
}

std::size_t measure_algorithms(cublasLtHandle_t handle, CudaStream stream,
                               const std::vector<LtAlgorithm>& all, const LtProduct& product,
                               LtOperation& operation, const LtOperands& operands,
                               Workspace workspace) {
  if (all.size() < 2 || workspace.bytes < sizeof(std::uint64_t) || is_capturing(stream, kWhere))
    return 0;
  const RelaxedCapture other_threads;  // may capture; this stream does not
  const auto run = [&](const LtAlgorithm& algorithm) {
    multiply(handle, stream, algorithm, operation, operands, workspace);
  };
  std::vector<MeasuredAlgorithm> measured(all.size());
  // The first runs load code and warm the GPU up; their results are compared. The checksum lies in
  // the workspace, which no call uses between two products.
  for (std::size_t i = 0; i < all.size(); ++i) {
    run(all[i]);
    auto* const sum = static_cast<unsigned long long*>(workspace.data);
    check(cudaMemsetAsync(sum, 0, sizeof(*sum), stream), "cudaMemsetAsync");
    add_checksum(stream, product.result, product.batch, operands.result, sum);
    check(cudaMemcpyAsync(&measured[i].checksum, sum, sizeof(*sum), cudaMemcpyDeviceToHost, stream),
          "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    measured[i].splits = splits_of(all[i]);
    measured[i].us = std::numeric_limits<double>::infinity();
  }
  const StreamWatch watch(stream, kWhere);
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (computes_as(measured[i], measured[0]))
        measured[i].us = std::min(measured[i].us, watch.time([&] {
          for (int call = 0; call < kCalls; ++call) run(all[i]);
        }) / kCalls);
    }
  }
  return fastest_equal(measured);
}

}  // namespace tessera::cuda
