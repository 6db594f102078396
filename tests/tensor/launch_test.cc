// From tensors to views, and a launch's records in trace and counters.

#include "tessera/tensor/kernels/launch.h"

#include <catch2/catch.hpp>
#include <cstdint>

#include "tessera/tensor/error.h"
#include "tessera/tensor/kernels/all.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/memory/storage.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/tensor.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/support/throws.h"

namespace tessera {
namespace {

using testing::thrown;

TEST_CASE("resolve: addresses, strides and what the trace needs") {
  const Tensor x = Tensor::from_vector<double>({0, 1, 2, 3, 4, 5}, {2, 3});
  const Tensor column = x.select(1, 2);
  const ConstView view = read(column);
  CHECK(view.data == static_cast<const double*>(x.storage().data()) + 2);
  CHECK(*view.as<double>() == 2);
  CHECK(view.dtype == DType::kF64);
  CHECK(view.shape == Shape{2});
  CHECK(view.strides == Shape{3});
  CHECK(view.storage == x.storage().id());
  CHECK(view.offset == 2);
  CHECK(view.numel() == 2);
  CHECK(view.defined());
  CHECK_FALSE(ConstView().defined());
}

TEST_CASE("resolve: writing counts the version up, reading and filling do not") {
  const Tensor x = Tensor::from_vector<float>({1, 2, 3}, {3});
  const Tensor part = x.slice(0, 1, 2);
  read(x);
  fill_view(x);
  CHECK(x.version() == 0);
  CHECK(write(part).data == static_cast<float*>(x.storage().data()) + 1);
  CHECK(x.version() == 1);
  CHECK(x.last_writer() == nullptr);
  CHECK(overwrite(part, "scribble").data == static_cast<float*>(x.storage().data()) + 1);
  CHECK(x.version() == 2);
  CHECK(std::string(x.last_writer()) == "scribble");
}

TEST_CASE("resolve: storage that is not ready") {
  const Tensor x = Tensor::empty_named({2}, {}, MemoryCategory::kGathered, "flat", false);
  CHECK(thrown<StateError>([&] { read(x); }).find("\"flat\"") != std::string::npos);
  CHECK(thrown<StateError>([&] { write(x); }).find("is released") != std::string::npos);
  CHECK(thrown<StateError>([&] { fill_view(x); }).find("is released") != std::string::npos);
  CHECK(thrown<StateError>([&] { overwrite(x, "fill"); }).find("is released") != std::string::npos);
  CHECK(x.version() == 0);  // a failed write does not count
  TensorStorage storage = x.storage();
  storage.materialize();
  storage.begin_fill();
  CHECK(thrown<StateError>([&] { read(x); }).find("being filled") != std::string::npos);
  CHECK(thrown<StateError>([&] { write(x); }).find("being filled") != std::string::npos);
  CHECK(fill_view(x).data != nullptr);
  CHECK(thrown<StateError>([] { read(Tensor()); }).find("undefined") != std::string::npos);
}

TEST_CASE("launch: one kernel record with the views it reads and writes") {
  const auto context = std::make_shared<RankContext>(0, 1, 1);
  const RankScope scope(context);
  for (Device device : {kCpu, kNull}) {
    const Tensor x = Tensor::from_vector<float>({-1, 2, -3, 4}, {4}, device);
    const Tensor y = Tensor::empty({2}, {.device = device});
    ExecutionTrace trace;
    context->set_trace(&trace);
    launch<UnaryKernel>(device, {read(x.slice(0, 1, 3)), write(y), UnaryOp::kRelu, DType::kF32});
    context->set_trace(nullptr);
    const auto kernels = trace.all<KernelRecord>();
    REQUIRE(kernels.size() == 1);
    CHECK(kernels[0].name == "unary");
    CHECK(kernels[0].stream == current_stream(device).id());
    REQUIRE(kernels[0].reads.size() == 1);
    CHECK(kernels[0].reads[0].storage == x.storage().id());
    CHECK(kernels[0].reads[0].offset == 1);
    CHECK(kernels[0].reads[0].shape == Shape{2});
    REQUIRE(kernels[0].writes.size() == 1);
    CHECK(kernels[0].writes[0].storage == y.storage().id());
    if (device == kCpu) CHECK(y.to_vector<float>() == std::vector<float>{2, 0});
  }
}

TEST_CASE("launch: in stream order on a queued stream") {
  const DeviceStream stream = DeviceStream::create(kCpu, StreamKind::kQueued, "compute");
  const StreamGuard guard(stream);
  Tensor x = Tensor::from_vector<double>({3}, {1});
  for (int i = 0; i < 500; ++i) {
    const Tensor y = Tensor::empty({1}, {.dtype = DType::kF64});
    launch<UnaryKernel>(kCpu, {read(x), write(y), UnaryOp::kNeg, DType::kF64});
    x = y;  // the input returns to the stream's memory while the kernel may still be waiting
  }
  CHECK(x.item<double>() == 3);
}

TEST_CASE("launch: scratch is counted as workspace while it is held, on every device") {
  const auto context = std::make_shared<RankContext>(0, 1, 1);
  const RankScope scope(context);
  for (Device device : {kCpu, kNull}) {
    const auto workspace = [&] { return context->memory().current()[MemoryCategory::kWorkspace]; };
    {
      const detail::LaunchWorkspace scratch(1000, current_stream(device));
      CHECK(scratch.get().bytes == 1000);
      CHECK(scratch.get().data != nullptr);
      CHECK(workspace() == 1024);
    }
    CHECK(workspace() == 0);
    const detail::LaunchWorkspace none(0, current_stream(device));
    CHECK(none.get().data == nullptr);
    CHECK(workspace() == 0);
  }
}

TEST_CASE("launch: a kernel without a version for the device") {
  const std::string text = thrown<DeviceError>([] {
    detail::throw_no_cuda_kernel("argmax", {DeviceType::kCuda, 0});
  });
  CHECK(text == std::string("[launch] kernel \"argmax\" cannot run on cuda:0: ") +
                    (kBuiltWithCuda ? "it has no CUDA version" : "this build has no CUDA") +
                    "; move the tensors to cpu");
}

}  // namespace
}  // namespace tessera
