#include "tessera/tensor/kernels/attention.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "tessera/tensor/kernels/conv.h"
#include "tessera/tensor/kernels/cuda/cudnn/cudnn_kernels.h"
#include "tessera/tensor/kernels/cuda/cudnn/paths.h"
#include "tessera/tensor/kernels/cuda/windows/plain.h"

namespace tessera {
namespace {

// Whether cuDNN is tried; it may still have no plan.
template <class Args>
bool asks_cudnn(const Args& a) {
  return cuda::attention_path(a, cuda::cudnn_facts()) == cuda::AttentionPath::kCudnn;
}

// Says once in a process, for each text.
void warn_once(const std::string& text) {
  static std::mutex mutex;
  static auto* said = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  if (said->insert(text).second) fmt::print(stderr, "warning: {}\n", text);
}

// From so many queries on, the time that our own kernels lose is worth a warning.
constexpr std::int64_t kSlowQueries = 128;

// Why attention in 16 bits takes many times as long as it could.
template <class Args>
void warn_of_plain(const Args& a) {
  const AttentionGeometry g(a.q, a.k, a.v);
  if (!cuda::detail::worth_cudnn(a.q.dtype, g) || g.queries < kSlowQueries) return;
  const char* reason = cuda::reason_against_cudnn(a, cuda::cudnn_facts());
  if (reason == nullptr) reason = "cuDNN has no plan for these sizes";
  warn_once(
      fmt::format("attention in {} does not use tensor cores, and takes many times as long: {}",
                  dtype_name(a.q.dtype), reason));
}

// Bytes of cuDNN's scratch if it computes these operands.
template <class Args>
std::optional<std::size_t> cudnn_bytes(const Args& a) {
  return asks_cudnn(a) ? cuda::cudnn_attention_bytes(a) : std::nullopt;
}

}  // namespace

std::size_t AttentionKernel::cuda_workspace(const Args& a) { return cudnn_bytes(a).value_or(0); }

void AttentionKernel::cuda(CudaStream stream, const Args& a, Workspace scratch) {
  if (asks_cudnn(a) && cuda::cudnn_attention(stream, a, scratch)) return;
  warn_of_plain(a);
  cuda::plain_attention(stream, a);
}

std::size_t AttentionBackwardKernel::cuda_workspace(const Args& a) {
  const std::optional<std::size_t> bytes = cudnn_bytes(a);
  return bytes ? *bytes : cuda::plain_attention_backward_bytes(a);
}

void AttentionBackwardKernel::cuda(CudaStream stream, const Args& a, Workspace scratch) {
  if (asks_cudnn(a) && cuda::cudnn_attention(stream, a, scratch)) return;
  warn_of_plain(a);
  cuda::plain_attention_backward(stream, a, scratch);
}

namespace {

// Whether cuDNN is tried; it may still have no plan.
template <class Args>
bool conv_asks_cudnn(const Args& a) {
  return cuda::conv_path(a.g, cuda::cudnn_facts()) == cuda::ConvPath::kCudnn;
}

// Bytes of cuDNN's scratch if it computes these operands.
template <class Args>
std::size_t conv_cudnn_bytes(const Args& a) {
  return conv_asks_cudnn(a) ? cuda::cudnn_conv_bytes(a).value_or(0) : 0;
}

// Convolutions of so many multiplications take our own kernels a millisecond and more.
constexpr double kSlowProducts = 1e9;

// Why a large convolution takes many times as long as it could.
void warn_of_plain(const ConvGeometry& g, DType dtype) {
  const double products = static_cast<double>(g.positions() * g.groups * g.out_channels) *
                          static_cast<double>(g.depth());
  if (products < kSlowProducts || dtype == DType::kF64) return;
  const char* reason = cuda::detail::facts_against_cudnn(cuda::cudnn_facts());
  if (reason == nullptr)
    reason = "cuDNN has no plan for these sizes with a fixed order of sums in full precision";
  warn_once(
      fmt::format("convolution in {} is not computed by cuDNN, and takes many times as long: {}",
                  dtype_name(dtype), reason));
}

// Returns false if cuDNN does not compute them.
template <class Args>
bool by_cudnn(CudaStream stream, const Args& a, DType dtype, Workspace scratch) {
  if (conv_asks_cudnn(a) && cuda::cudnn_conv(stream, a, scratch)) return true;
  warn_of_plain(a.g, dtype);
  return false;
}

}  // namespace

std::size_t ConvKernel::cuda_workspace(const Args& a) { return conv_cudnn_bytes(a); }
std::size_t ConvBackwardInputKernel::cuda_workspace(const Args& a) { return conv_cudnn_bytes(a); }
std::size_t ConvBackwardWeightKernel::cuda_workspace(const Args& a) { return conv_cudnn_bytes(a); }

void ConvKernel::cuda(CudaStream stream, const Args& a, Workspace scratch) {
  if (!by_cudnn(stream, a, a.x.dtype, scratch)) return cuda::plain_conv(stream, a);
  if (a.bias.defined()) cuda::add_conv_bias(stream, a);
}
void ConvBackwardInputKernel::cuda(CudaStream stream, const Args& a, Workspace scratch) {
  if (!by_cudnn(stream, a, a.dy.dtype, scratch)) cuda::plain_conv(stream, a);
}
void ConvBackwardWeightKernel::cuda(CudaStream stream, const Args& a, Workspace scratch) {
  if (!by_cudnn(stream, a, a.dy.dtype, scratch)) cuda::plain_conv(stream, a);
}

}  // namespace tessera
