// Operations that only move memory, compared with a plain copy on the same GPU:
//
//     tools/bazel run --config=cuda //tools/bench:bench_gpu_bandwidth
//
// Prints a line of JSON for each: `bytes` is the minimum that the operation must read and write,
// each tensor once (exceptions have a comment); `copy_us` is a device-to-device copy by the driver
// that reads and writes as many bytes, measured in turns with it; `ratio` is copy_us / us, 1 if the
// operation is as fast. Tensors are much larger than the caches of a GPU. With --smoke: everything
// once, small, also without a GPU.
#include "tessera/tools/bench/bench_gpu_bandwidth.h"

#include "tessera/tensor/ops/ops.h"

namespace tessera {
namespace {

void measure_elementwise(const Bandwidth& b) {
  const Tensor x = b.matrix("x"), y = b.matrix("y"), row = b.random({b.width()}, "row");
  const std::int64_t n = b.bytes(x);
  b.measure({"gelu", "forward", 2 * n}, [&] { gelu(x); });
  b.measure({"gelu", "backward", 3 * n}, [&] { gelu_backward(y, x); });
  b.measure({"gelu_tanh", "forward", 2 * n}, [&] { gelu_tanh(x); });
  b.measure({"gelu_tanh", "backward", 3 * n}, [&] { gelu_tanh_backward(y, x); });
  b.measure({"silu", "forward", 2 * n}, [&] { silu(x); });
  b.measure({"add", "forward", 3 * n}, [&] { add(x, y); });
  b.measure({"add a number", "forward", 2 * n}, [&] { add(x, 1); });
  b.measure({"add a row", "forward", 2 * n}, [&] { add(x, row); });
  b.measure({"mul", "forward", 3 * n}, [&] { mul(x, y); });
  b.measure({"addcmul", "forward", 4 * n}, [&] { addcmul(x, y, x, 0.5); });
  b.measure({"add in place", "forward", 3 * n}, [&] { add_(x, y); });
  b.measure({"axpby", "forward", 3 * n}, [&] { axpby_(x, y, {.alpha = 0.5, .beta = 0.5}); });
  b.measure({"fill", "forward", n}, [&] { fill_(y, 1); });
  const random::Box box = random::whole(x.shape());
  b.measure({"dropout", "forward", 2 * n}, [&] { dropout(x, 0.1, random::Key{7}, box); });
  const DType other = b.dtype() == DType::kF32 ? DType::kBF16 : DType::kF32;
  const auto cast_bytes = x.numel() * static_cast<std::int64_t>(dtype_size(other));
  b.measure({other == DType::kF32 ? "cast to f32" : "cast to bf16", "forward", n + cast_bytes},
            [&] { cast(x, other); });
}

void measure_copies(const Bandwidth& b) {
  const Tensor x = b.matrix("x"), wide = b.random({b.rows(), 2 * b.width()}, "wide");
  const std::int64_t n = b.bytes(x);
  b.measure({"clone", "forward", 2 * n}, [&] { clone(x); });
  b.measure({"copy of a transpose", "forward", 2 * n}, [&] { clone(x.transpose(0, 1)); });
  b.measure({"copy of half the columns", "forward", 2 * n},
            [&] { clone(wide.narrow(1, 0, b.width())); });
  const std::int64_t head = b.width() / 4;
  const Tensor heads = x.view({2, b.rows() / 2, 4, head}).transpose(1, 2);
  b.measure({"copy of heads", "forward", 2 * n}, [&] { clone(heads); });
  b.measure({"cat", "forward", 4 * n}, [&] { cat({x, x}, 1); });
  const Tensor mask = gt(x, 0);
  b.measure({"masked_fill", "forward", 2 * n + b.bytes(mask)}, [&] { masked_fill(x, mask, 0); });
  b.measure({"tril", "forward", 2 * n}, [&] { tril(x); });
}

void measure_reductions(const Bandwidth& b) {
  const Tensor x = b.matrix("x");
  const std::int64_t n = b.bytes(x);
  b.measure({"sum of rows", "forward", n}, [&] { sum(x, {1}); });
  b.measure({"sum of columns", "forward", n}, [&] { sum(x, {0}); });
  b.measure({"sum of all", "forward", n}, [&] { sum(x); });
  b.measure({"amax of rows", "forward", n}, [&] { amax(x, {1}); });
  b.measure({"logsumexp of rows", "forward", n}, [&] { logsumexp(x, {1}); });
  const std::vector<Tensor> parts = split(x.view({x.numel()}), x.numel() / 5);
  b.measure({"sum of squares of a list", "forward", n}, [&] { sum_of_squares(parts); });
  b.measure({"argmax of rows", "forward", n}, [&] { argmax(x); });
  b.measure({"cumsum along rows", "forward", 2 * n}, [&] { cumsum(x, 1); });
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;
  const BenchStart start = start_benchmark(argc, argv);
  if (!start.run) return start.exit_status;
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    const Bandwidth bandwidth(*start.run, dtype);
    measure_elementwise(bandwidth);
    measure_copies(bandwidth);
    measure_reductions(bandwidth);
    measure_rows(bandwidth);
    measure_embedding(bandwidth);
    measure_channels(bandwidth);
    measure_optimizers(bandwidth);
  }
  return 0;
}
