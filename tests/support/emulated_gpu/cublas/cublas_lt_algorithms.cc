#include "tessera/tests/support/emulated_gpu/cublas/cublas_lt_algorithms.h"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <vector>

namespace tessera::emulated::cublas {
namespace {

constexpr std::size_t kVectorBytes = 16;
constexpr AlgorithmId kIds[] = {kSplit, kVector, kPlain};  // by the time they are said to take

Verdict invalid(std::string why) { return {CUBLAS_STATUS_INVALID_VALUE, std::move(why)}; }
Verdict unsupported(std::string why) { return {CUBLAS_STATUS_NOT_SUPPORTED, std::move(why)}; }

// The largest power of two, at most `limit`, that divides the address.
std::size_t alignment_of(const void* at, std::size_t limit) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  std::size_t alignment = limit;
  while (alignment > 1 && address % alignment != 0) alignment /= 2;
  return alignment;
}

bool steps_are_vectors(const MatrixLayout& x) {
  const auto is = [&](std::int64_t elements) {
    return static_cast<std::size_t>(elements) * size_of(x.type) % kVectorBytes == 0;
  };
  return (x.cols == 1 || is(x.ld)) && (x.batch_count == 1 || is(x.batch_stride));
}

std::mutex handles_mutex;
std::set<const Handle*>& handles() {
  static std::set<const Handle*> live;
  return live;
}

Algorithm of_types(AlgorithmId id, const Problem& p) {
  Algorithm a;
  a.id = id;
  a.compute_type = p.op.compute_type, a.scale_type = p.op.scale_type;
  a.a_type = static_cast<std::uint16_t>(p.a.type), a.b_type = static_cast<std::uint16_t>(p.b.type);
  a.c_type = static_cast<std::uint16_t>(p.c.type), a.d_type = static_cast<std::uint16_t>(p.d.type);
  a.bias_alignment = static_cast<std::uint16_t>(alignment_of(p.op.bias, kVectorBytes));
  a.aux_alignment = static_cast<std::uint16_t>(alignment_of(p.op.aux, kVectorBytes));
  if (id == kSplit) a.splits = p.k >= 64 ? 3 : 2;
  return a;
}

// Whether `a` respects what the caller said of his buffers and wishes.
bool fits(const Algorithm& a, const Problem& p, const Preference& wish) {
  const MatrixLayout* layouts[] = {&p.a, &p.b, &p.c, &p.d};
  for (int i = 0; i < 4; ++i) {
    if (wish.alignment[i] < pointer_alignment(a, *layouts[i])) return false;
  }
  const bool may_split = (wish.reduction_schemes & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) != 0;
  return check_algorithm(a, p).ok() && workspace_bytes(a, p) <= wish.max_workspace &&
         (a.splits == 1 || may_split);
}

std::vector<Algorithm> find(const Problem& p, const Preference& wish) {
  std::vector<Algorithm> found;
  for (const AlgorithmId id : kIds) {
    const Algorithm a = of_types(id, p);
    if (fits(a, p, wish)) found.push_back(a);
  }
  return found;
}

void store(const Algorithm& from, cublasLtMatmulAlgo_t* to) {
  *to = {};
  std::memcpy(to, &from, sizeof from);
}

}  // namespace

const Algorithm* content(const cublasLtMatmulAlgo_t* algorithm) {
  const auto* inside = reinterpret_cast<const Algorithm*>(algorithm);
  return inside == nullptr || inside->mark != Algorithm::kMark ? nullptr : inside;
}

Verdict check_algorithm(const Algorithm& a, const Problem& p) {
  if (a.compute_type != p.op.compute_type || a.scale_type != p.op.scale_type ||
      a.a_type != p.a.type || a.b_type != p.b.type || a.c_type != p.c.type ||
      a.d_type != p.d.type) {
    return invalid("the algorithm was made for other types");
  }
  const bool steps = steps_are_vectors(p.a) && steps_are_vectors(p.b) && steps_are_vectors(p.c) &&
                     steps_are_vectors(p.d);
  if (a.id != kPlain && !steps) {
    return unsupported(
        fmt::format("algorithm {} needs leading dimensions and batch strides of {} "
                    "bytes; leading dimensions are {}, {}, {}, {}",
                    a.id, kVectorBytes, p.a.ld, p.b.ld, p.c.ld, p.d.ld));
  }
  if (a.splits > p.k) return unsupported(fmt::format("k = {} in {} parts", p.k, a.splits));
  return {};
}

std::size_t workspace_bytes(const Algorithm& a, const Problem& p) {
  if (a.splits == 1) return 0;
  return static_cast<std::size_t>(a.splits) * p.batch * p.m * p.n *
         (in_f64(p) ? sizeof(double) : sizeof(float));
}

std::size_t pointer_alignment(const Algorithm& a, const MatrixLayout& layout) {
  return a.id == kPlain ? size_of(layout.type) : kVectorBytes;
}

Algorithm default_algorithm(const Problem& problem) {
  const auto found = find(problem, {});
  return found.empty() ? of_types(kPlain, problem) : found.front();
}

const Handle* check_handle(const char* function, cublasLtHandle_t handle) {
  const auto* inside = reinterpret_cast<const Handle*>(handle);
  {
    const std::lock_guard lock(handles_mutex);
    if (!handles().contains(inside)) {
      refuse(function, CUBLAS_STATUS_NOT_INITIALIZED, "this is no live cublasLt handle");
      return nullptr;
    }
  }
  int device = -1;
  if (cudaGetDevice(&device) != cudaSuccess || device != inside->device) {
    refuse(function, CUBLAS_STATUS_NOT_INITIALIZED,
           fmt::format("the handle is of GPU {}, the current one is {}", inside->device, device));
    return nullptr;
  }
  return inside;
}

}  // namespace tessera::emulated::cublas

using namespace tessera::emulated::cublas;  // NOLINT: what follows is the API itself

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (handle == nullptr) return refuse(__func__, CUBLAS_STATUS_INVALID_VALUE, "no place given");
  int device = -1;
  if (cudaGetDevice(&device) != cudaSuccess) {
    return refuse(__func__, CUBLAS_STATUS_NOT_INITIALIZED, "there is no GPU");
  }
  auto* created = new Handle{device};
  const std::lock_guard lock(handles_mutex);
  handles().insert(created);
  *handle = reinterpret_cast<cublasLtHandle_t>(created);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t op,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* returned) {
  if (check_handle(__func__, handle) == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const Preference* wish = content(preference);
  if (requested <= 0 || results == nullptr || returned == nullptr || wish == nullptr) {
    return refuse(__func__, CUBLAS_STATUS_INVALID_VALUE,
                  fmt::format("{} results asked for; results, their count and an initialised "
                              "preference are needed",
                              requested));
  }
  *returned = 0;
  const auto [problem, verdict] = read_problem(op, {a, b, c, d});
  if (!verdict.ok()) return refuse(__func__, verdict.status, verdict.why);
  const auto found = find(problem, *wish);
  if (found.empty()) {
    return refuse(
        __func__, CUBLAS_STATUS_NOT_SUPPORTED,
        fmt::format("no algorithm for alignments {}, {}, {}, {} and {} bytes of workspace",
                    wish->alignment[0], wish->alignment[1], wish->alignment[2], wish->alignment[3],
                    wish->max_workspace));
  }
  for (; *returned < std::min(requested, static_cast<int>(found.size())); ++*returned) {
    cublasLtMatmulHeuristicResult_t& result = results[*returned];
    result = {};
    store(found[*returned], &result.algo);
    result.workspaceSize = workspace_bytes(found[*returned], problem);
    result.state = CUBLAS_STATUS_SUCCESS;
    result.wavesCount = 1.0f + static_cast<float>(*returned);
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void* value, std::size_t size,
                                                    std::size_t* written) {
  const Algorithm* inside = content(algorithm);
  if (inside == nullptr || value == nullptr || attribute != CUBLASLT_ALGO_CONFIG_SPLITK_NUM ||
      size != sizeof(inside->splits)) {
    return refuse(__func__, CUBLAS_STATUS_INVALID_VALUE,
                  fmt::format("attribute {} of {} bytes; only the number of splits is known",
                              static_cast<int>(attribute), size));
  }
  std::memcpy(value, &inside->splits, size);
  if (written != nullptr) *written = size;
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
