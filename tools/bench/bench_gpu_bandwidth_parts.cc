#include <set>
#include <vector>

#include <fmt/format.h>

#include "tessera/tensor/cuda/queue.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tools/bench/bench_gpu_bandwidth.h"

namespace tessera {

Bandwidth::Bandwidth(const BenchRun& run, DType dtype)
    : run_(run), dtype_(dtype), rows_(run.smoke ? 6 : 16384), width_(run.smoke ? 40 : 4096) {}

void Bandwidth::measure(const Moved& moved, const std::function<void()>& body) const {
  const std::int64_t half = moved.bytes / 2;  // a copy reads and writes it
  const Tensor from = zeros({half}, {.dtype = DType::kU8, .device = run_.device});
  const Tensor to = empty_like(from);
  const auto copy = [&] {
    if (run_.device.is_cpu()) return copy_(to, from);
    current_stream(run_.device)
        .cuda_queue()
        .copy(write(to).data, read(from).data, static_cast<std::size_t>(half));
  };
  const Comparison times = compare(run_, body, copy);
  print_row(run_,
            fmt::format(R"("bench": "bandwidth", "op": "{}", "pass": "{}", "dtype": "{}")",
                        moved.op, moved.pass, dtype_name(dtype_)),
            fmt::format(R"("bytes": {}, "us": {:.2f}, "copy_us": {:.2f}, "gb_per_s": {:.0f}, )"
                        R"("ratio": {:.3f}, "goal": 0.88)",
                        moved.bytes, times.ours, times.theirs,
                        static_cast<double>(moved.bytes) / times.ours * 1e-3, times.ratio));
}

Tensor Bandwidth::random(const Shape& shape, const char* name) const {
  return random_tensor(shape, {.dtype = dtype_, .device = run_.device}, name);
}

namespace {

void measure_norms(const Bandwidth& b) {
  const Tensor x = b.matrix("x"), dy = b.matrix("dy"), residual = b.matrix("residual");
  const Tensor weight = b.random({b.width()}, "weight"), bias = b.random({b.width()}, "bias");
  const std::int64_t n = b.bytes(x);
  b.measure({"layer_norm", "forward", 2 * n}, [&] { layer_norm_forward(x, weight, bias); });
  b.measure({"rms_norm", "forward", 2 * n}, [&] { rms_norm_forward(x, weight); });
  b.measure({"add_layer_norm", "forward", 4 * n},
            [&] { add_layer_norm_forward(x, residual, weight, bias); });
  b.measure({"add_rms_norm", "forward", 4 * n}, [&] { add_rms_norm_forward(x, residual, weight); });
  const NormStatistics layer = layer_norm_forward(x, weight, bias).statistics;
  const NormStatistics rms = rms_norm_forward(x, weight).statistics;
  b.measure({"layer_norm", "backward", 3 * n}, [&] { row_norm_backward(dy, x, weight, layer); });
  b.measure({"rms_norm", "backward", 3 * n},
            [&] { row_norm_backward(dy, x, weight, rms, {.needs_bias = false}); });
}

void measure_softmax(const Bandwidth& b) {
  const Tensor x = b.matrix("x"), dy = b.matrix("dy"), y = softmax(x);
  const std::int64_t n = b.bytes(x);
  b.measure({"softmax", "forward", 2 * n}, [&] { softmax(x); });
  b.measure({"softmax", "backward", 3 * n}, [&] { softmax_backward(dy, y); });
  b.measure({"log_softmax", "forward", 2 * n}, [&] { log_softmax(x); });
  b.measure({"log_softmax", "backward", 3 * n}, [&] { log_softmax_backward(dy, y); });
}

void measure_cross_entropy(const Bandwidth& b) {
  const std::int64_t rows = b.smoke() ? 5 : 2048, classes = b.smoke() ? 37 : 50304;
  const Tensor logits = b.random({rows, classes}, "logits");
  const Tensor targets = Tensor::empty({rows}, {.dtype = DType::kI64, .device = b.device()});
  random::fill_integers(targets, random::named_key(1, "targets"), random::whole({rows}), 0,
                        classes);
  const std::int64_t n = b.bytes(logits);
  b.measure({"cross_entropy", "forward", n}, [&] { cross_entropy_rows(logits, targets); });
  const CrossEntropyResult result = cross_entropy_rows(logits, targets);
  b.measure({"cross_entropy", "backward", 2 * n}, [&] {
    cross_entropy_rows_backward(result.row_weight, logits, targets, result.log_sum_exp);
  });
}

void measure_rotary(const Bandwidth& b) {
  const std::int64_t features = b.smoke() ? 8 : 128, heads = b.width() / features;
  const std::int64_t positions = b.rows() / 2;
  const Tensor x = b.matrix("x").view({2, positions, heads, features});
  const RotaryTable table = rotary_table(positions, features, {.device = b.device()});
  const std::int64_t n = b.bytes(x), of_table = b.bytes(table.cos) + b.bytes(table.sin);
  b.measure({"rotary", "forward", 2 * n + of_table}, [&] { rotary(x, table); });
  b.measure({"rotary", "backward", 2 * n + of_table}, [&] { rotary(x, table, {.inverse = true}); });
}

}  // namespace

void measure_rows(const Bandwidth& b) {
  measure_norms(b);
  measure_softmax(b);
  measure_cross_entropy(b);
  measure_rotary(b);
}

void measure_embedding(const Bandwidth& b) {
  const std::int64_t entries = b.smoke() ? 11 : 32000, tokens = 2 * b.rows();
  const Tensor weight = b.random({entries, b.width()}, "weight");
  const Tensor index = Tensor::empty({tokens}, {.dtype = DType::kI64, .device = b.device()});
  random::fill_integers(index, random::named_key(1, "index"), random::whole({tokens}), 0, entries);
  const Tensor dy = b.random({tokens, b.width()}, "dy");
  const std::int64_t n = b.bytes(dy), of_index = b.bytes(index);
  const std::vector<std::int64_t> chosen = index.to_vector<std::int64_t>();
  const auto distinct = static_cast<std::int64_t>(std::set(chosen.begin(), chosen.end()).size());
  const std::int64_t read = distinct * b.bytes(weight) / entries;
  b.measure({"embedding", "forward", read + n + of_index}, [&] { embedding(weight, index); });
  b.measure({"embedding", "backward", n + b.bytes(weight) + of_index},
            [&] { embedding_backward_into(weight, dy, index); });
}

void measure_channels(const Bandwidth& b) {
  const std::int64_t samples = b.smoke() ? 2 : 64, side = b.smoke() ? 6 : 56;
  const std::int64_t channels = b.smoke() ? 3 : 256;
  const Tensor x = b.random({samples, channels, side, side}, "x");
  const Tensor dy = b.random(x.shape(), "dy");
  const Tensor weight = b.random({channels}, "weight"), bias = b.random({channels}, "bias");
  const std::int64_t n = b.bytes(x);
  // x is read twice: for the statistics, and with them.
  b.measure({"batch_norm", "forward", 3 * n}, [&] { batch_norm_forward(x, weight, bias); });
  const BatchNormResult norm = batch_norm_forward(x, weight, bias);
  b.measure({"batch_norm with given statistics", "forward", 2 * n},
            [&] { batch_norm_apply(x, weight, bias, norm.statistics); });
  // dy and x are read twice: for the sums, and with them.
  b.measure({"batch_norm", "backward", 5 * n}, [&] {
    BatchNormSums sums = batch_norm_sums(dy, x, norm.statistics);
    sums.count = norm.count;
    batch_norm_input_gradient(dy, x, weight, norm.statistics, sums);
  });

  const MaxPool2dOptions max = {.kernel = 2};
  const MaxPoolResult pooled = max_pool2d(x, max);
  const std::int64_t of_max = n + b.bytes(pooled.output) + b.bytes(pooled.indices);
  b.measure({"max_pool2d", "forward", of_max}, [&] { max_pool2d(x, max); });
  b.measure({"max_pool2d", "backward", of_max},
            [&] { max_pool_backward(pooled.output, pooled.indices, x.shape(), max); });
  const AvgPool2dOptions avg = {.kernel = 2};
  const std::int64_t of_avg = n + b.bytes(pooled.output);
  b.measure({"avg_pool2d", "forward", of_avg}, [&] { avg_pool2d(x, avg); });
  b.measure({"avg_pool2d", "backward", of_avg},
            [&] { avg_pool_backward(pooled.output, x.shape(), avg); });
  b.measure({"adaptive_avg_pool2d to 1", "forward", n}, [&] { adaptive_avg_pool2d(x, 1); });
}

namespace {

// Tensors like a transformer's parameters: many, of different sizes.
std::vector<Tensor> parameters(const Bandwidth& b, const char* name) {
  std::vector<Tensor> out;
  for (int layer = 0; layer < (b.smoke() ? 1 : 24); ++layer) {
    for (const std::int64_t rows : {3, 1, 4, 4}) {
      out.push_back(b.random({rows * b.width() / 4, b.width() / 4}, name));
      out.push_back(b.random({rows * b.width() / 4}, name));
    }
  }
  return out;
}

}  // namespace

void measure_optimizers(const Bandwidth& b) {
  if (b.dtype() != DType::kF32) return;  // 16-bit parameters use the f32 kernel
  const std::vector<Tensor> p = parameters(b, "p"), g = parameters(b, "g");
  const std::vector<Tensor> m = parameters(b, "m");
  std::vector<AdamSegment> adam, adam_copy;
  std::vector<SgdSegment> sgd;
  std::int64_t n = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    n += b.bytes(p[i]);
    sgd.push_back({.parameter = p[i],
                   .gradient = g[i],
                   .momentum = m[i],
                   .lr = 1e-9,
                   .momentum_factor = 0.9});
    adam.push_back({.parameter = p[i],
                    .gradient = g[i],
                    .exp_avg = m[i],
                    .exp_avg_sq = square(m[i]),
                    .lr = 1e-9,
                    .weight_decay = 0.1});
    adam_copy.push_back(adam.back());
    adam_copy.back().copy = cast(p[i], DType::kBF16);
  }
  b.measure({"sgd with momentum", "step", 5 * n}, [&] { sgd_step(sgd); });
  b.measure({"adamw", "step", 7 * n}, [&] { adam_step(adam); });
  b.measure({"adamw with a bf16 copy", "step", 7 * n + n / 2}, [&] { adam_step(adam_copy); });
}

}  // namespace tessera
