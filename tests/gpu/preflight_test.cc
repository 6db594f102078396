// Ten seconds before anything longer: does this machine have all that Tessera needs? One line for
// each part, with the remedy where it fails.

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/collectives.h"
#include "tessera/distributed/nccl/process_group_nccl.h"
#include "tessera/distributed/store/store.h"
#include "tessera/tensor/cuda/graph.h"
#include "tessera/tensor/cuda/queue.h"
#include "tessera/tensor/kernels/cuda/cudnn/cudnn_kernels.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/random.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tests/support/close.h"

namespace tessera {
namespace {

using testing::all_close;

constexpr Device kGpu{DeviceType::kCuda, 0};
constexpr testing::Tolerance kTolerance{.rtol = 4e-2, .atol = 4e-2};

/// Runs one part, whose text says what it found.
void part(const char* name, const char* remedy, const std::function<std::string()>& body) {
  try {
    const std::string found = body();
    std::printf("preflight: %s: %s\n", name, found.c_str());
  } catch (const std::exception& error) {
    std::printf("preflight: %s FAILED: %s\n", name, error.what());
    FAIL(name << ": " << error.what() << "\n  remedy: " << remedy);
  }
}

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

Tensor normal(const Shape& shape, std::string_view name) {
  const Tensor out = Tensor::empty(shape, {.dtype = DType::kBF16, .device = kCpu});
  random::fill_normal(out, random::named_key(1, name), random::whole(shape), 0, 1);
  return out;
}

Tensor on(Device device, const Tensor& x) { return to_device(x, device); }

void require_close(const Tensor& actual, const Tensor& expected) {
  const testing::CloseResult close = all_close(on(kCpu, actual), expected, kTolerance);
  require(close.ok, close.message);
}

TEST_CASE("preflight: memory and copies") {
  part("memory", "see `nvidia-smi`: another program may hold the memory, or the driver is too old",
       [] {
         const Tensor x = normal({257, 129}, "x");
         require_close(add(on(kGpu, x), on(kGpu, x)), add(x, x));
         return std::string("allocates, copies, adds");
       });
}

TEST_CASE("preflight: CUDA graphs") {
  part("graphs", "a driver for CUDA 12.1 or newer is needed", [] {
    const DeviceStream stream = DeviceStream::create(kGpu, StreamKind::kQueued, "preflight");
    const StreamGuard guard(stream);
    const Tensor x = full({8}, 1, {.device = kGpu});
    cuda::CudaGraph graph;
    graph.capture(stream.cuda_queue(), [&] { axpby_(x, x, {.alpha = 1, .beta = 1}); });
    for (int i = 0; i < 3; ++i) graph.replay(stream.cuda_queue());
    stream.synchronize();
    require_close(x, full({8}, 8));
    return std::string("captures and replays");
  });
}

TEST_CASE("preflight: products by cuBLASLt") {
  part("cuBLASLt", "put the folder of libcublasLt.so.13 into LD_LIBRARY_PATH", [] {
    const Tensor x = normal({64, 128}, "x"), w = mul(normal({256, 128}, "w"), 0.1),
                 b = normal({256}, "b");
    require_close(linear(on(kGpu, x), on(kGpu, w), on(kGpu, b), ActivationKind::kGeluTanh),
                  linear(x, w, b, ActivationKind::kGeluTanh));
    return std::string("multiplies, with bias and GELU");
  });
}

// The gradients of q, k, v, after the result.
std::vector<Tensor> attention(Device device) {
  std::vector<Variable> in;
  for (const char* name : {"q", "k", "v"})
    in.emplace_back(on(device, normal({2, 4, 64, 64}, name)), true);
  const Variable out = scaled_dot_product_attention(in[0], in[1], in[2], {.causal = true});
  backward(out, {.gradient = on(device, normal({2, 4, 64, 64}, "dout"))});
  return {out.tensor(), in[0].grad(), in[1].grad(), in[2].grad()};
}

TEST_CASE("preflight: attention by cuDNN, both ways") {
  part("cuDNN",
       "put the folder of a libcudnn.so.9 of version 9.14 or newer first in LD_LIBRARY_PATH", [] {
         const cuda::CudnnFacts facts = cuda::cudnn_facts();
         const char* reason = cuda::detail::facts_against_cudnn(facts);
         require(reason == nullptr, reason == nullptr ? "" : reason);
         const std::vector<Tensor> ours = attention(kGpu), expected = attention(kCpu);
         for (std::size_t i = 0; i < ours.size(); ++i) require_close(ours[i], expected[i]);
         return "version " + std::to_string(facts.version) + ", on compute capability " +
                std::to_string(facts.major) + ".x";
       });
}

TEST_CASE("preflight: NCCL connects") {
  if (!distributed::has_nccl()) {
    std::printf("preflight: NCCL: not in this build\n");
    return;
  }
  part("NCCL", "put the folder of libnccl.so.2 into LD_LIBRARY_PATH; NCCL_DEBUG=INFO tells more",
       [] {
         const auto store = std::make_shared<distributed::MemoryStore>();
         const RankScope scope(std::make_shared<RankContext>(0, 1, 1));
         const auto group = distributed::make_nccl_group(
             "preflight", {.store = store, .timeout = std::chrono::seconds(60)});
         const Tensor x = full({1000}, 3, {.device = kGpu});
         all_reduce(*group, {{x}}, distributed::ReduceOp::kSum);
         current_stream(kGpu).synchronize();
         require_close(x, full({1000}, 3));
         return std::string("one rank reduces");
       });
}

}  // namespace
}  // namespace tessera
