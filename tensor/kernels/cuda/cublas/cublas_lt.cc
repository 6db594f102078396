#include "tessera/tensor/kernels/cuda/cublas/cublas_lt.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tessera/tensor/check.h"
#include "tessera/tensor/cuda/check_cuda.h"
#include "tessera/tensor/cuda/device_guard.h"
#include "tessera/tensor/kernels/cuda/cublas/cublas_choice.h"
#include "tessera/tensor/kernels/cuda/cublas/cublas_descriptors.h"
#include "tessera/tensor/kernels/cuda/cublas/cublas_library.h"
#include "tessera/tensor/kernels/cuda/cublas/cublas_meaning.h"

namespace tessera::cuda {
namespace {

constexpr const char* kWhere = MatmulKernel::kName;

struct KeyHash {
  std::size_t operator()(const LtKey& key) const {
    std::uint64_t hash = 0;
    const auto mix = [&](auto value) {
      hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 32;
    };
    const LtProduct& product = key.product;
    mix(static_cast<int>(product.compute) + 16 * static_cast<int>(product.epilogue) +
        256 * product.first_transposed + 512 * product.second_transposed);
    for (const LtMatrix* matrix : {&product.first, &product.second, &product.result}) {
      mix(static_cast<int>(matrix->dtype));
      mix(matrix->rows);
      mix(matrix->columns);
      mix(matrix->leading);
      mix(matrix->batch_stride);
    }
    mix(product.aux_leading);
    mix(product.aux_batch_stride);
    mix(product.batch);
    for (std::uint32_t alignment : key.alignment) mix(alignment);
    mix(key.workspace);
    return hash;
  }
};

// Null: the library has no algorithm.
using Prepared = std::shared_ptr<const LtAlgorithm>;

// The library on one GPU. Never destroyed: other threads may still issue work while the process
// exits.
class Library {
 public:
  Library() { check_cublas(cublaslt().cublasLtCreate(&handle_), kWhere, "cublasLtCreate"); }

  cublasLtHandle_t handle() const { return handle_; }
  Prepared get(CudaStream stream, const LtProduct& product, LtOperation& operation,
               const LtOperands& operands, Workspace workspace) {
    const LtKey key = key_of(product, operands, workspace);
    // A product that adds to its result, or is captured, cannot run several times: it takes the
    // first proposal, and the choice waits for a later call.
    const auto may_measure = [&] { return operands.beta == 0 && !is_capturing(stream, kWhere); };
    {
      std::lock_guard lock(mutex_);
      const auto found = prepared_.find(key);
      if (found != prepared_.end() && (found->second.chosen || !may_measure()))
        return found->second.algorithm;
    }
    // Several, because the library also proposes configurations that need more workspace than
    // allowed.
    const std::vector<LtAlgorithm> proposed = propose(handle_, key, operation, {.most = 8});
    const bool measures = proposed.size() > 1 && worth_measuring(product);
    Entry made{.algorithm = nullptr, .chosen = !measures || may_measure()};
    if (!proposed.empty()) {
      const std::size_t best = measures && made.chosen
                                   ? measure_algorithms(handle_, stream, proposed, product,
                                                        operation, operands, workspace)
                                   : 0;
      made.algorithm = std::make_shared<const LtAlgorithm>(proposed[best]);
    }
    std::lock_guard lock(mutex_);
    if (prepared_.size() >= kMostPrepared) prepared_.clear();
    return (prepared_[key] = std::move(made)).algorithm;
  }

 private:
  struct Entry {
    Prepared algorithm;
    bool chosen = false;  // else it is only the first proposal so far
  };
  static constexpr std::size_t kMostPrepared = 8192;  // bounded, because the number of sizes is not
  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;
  std::unordered_map<LtKey, Entry, KeyHash> prepared_;
};

Library& current_library() {
  static auto* const mutex = new std::mutex;
  static auto* const libraries = new std::map<int, std::unique_ptr<Library>>;
  int device = 0;
  check_cuda(cudaGetDevice(&device), kWhere, "cudaGetDevice");
  std::lock_guard lock(*mutex);
  std::unique_ptr<Library>& library = (*libraries)[device];
  if (!library) library = std::make_unique<Library>();
  return *library;
}

}  // namespace

bool try_product(CudaStream stream, const LtProduct& product, const LtOperands& operands,
                 Workspace workspace) {
  Library& library = current_library();
  LtOperation operation(product, operands);
  const Prepared prepared = library.get(stream, product, operation, operands, workspace);
  if (prepared == nullptr) return false;
  multiply(library.handle(), stream, *prepared, operation, operands, workspace);
  return true;
}

void run_product(CudaStream stream, const LtProduct& product, const LtOperands& operands,
                 Workspace workspace) {
  if (!try_product(stream, product, operands, workspace))
    throw DeviceError(error_text(kWhere, no_algorithm_text(product)));
}

cublasLtHandle_t current_handle() { return current_library().handle(); }

std::string no_algorithm_text(const LtProduct& product) {
  const std::int64_t k = product.first_transposed ? product.first.rows : product.first.columns;
  return fmt::format(
      "cuBLAS has no algorithm for {} products of {} x {} by {} x {} from {} to {} on this GPU; "
      "install a newer cuBLAS, or make the operands contiguous",
      product.batch, product.result.columns, k, k, product.result.rows,
      dtype_name(product.first.dtype), dtype_name(product.result.dtype));
}

void check_cublas(int code, const char* where, const char* what) {
  if (code == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  const auto status = static_cast<cublasStatus_t>(code);
  const CublasLt& lt = cublaslt(where);
  const std::string message = cublas_message(code, lt.cublasLtGetStatusName(status),
                                             lt.cublasLtGetStatusString(status), what);
  if (cublas_meaning(code).out_of_memory) throw OutOfMemory(error_text(where, message));
  throw DeviceError(error_text(where, message));
}

}  // namespace tessera::cuda
