// Training steps of language models on one GPU, in bf16 with f32 masters:
//
//     tools/bazel run --config=cuda //tools/bench:bench_gpu_train
//     tools/bazel run --config=cuda //tools/bench:bench_gpu_train -- --only gpt2-124m
//
// Each row builds a model sharded over one rank, whose 16-bit weights are kept from forward to
// backward (as PyTorch's autocast keeps them), trains it with models::Trainer (AdamW, gradients
// clipped to 1, the same random tokens at each step) for some steps, and times others. `step_ms` is
// the median time of a step. `forward_ms`, `backward_ms` and `update_ms` come from five more steps
// that wait for the device after each part; `host_ms` is the time in which the host issues them.
// `tflops` counts 6 floating-point operations for each weight of a product and token, and 12 layers
// dim length for attention over whole sequences (the convention of PaLM's MFU, which does not halve
// causal attention); `ratio` is tflops / 989, the dense peak of an H100 in bf16: the MFU.
// `product_tflops` is what one large product of random numbers reaches on this GPU for a second,
// and `of_product` is tflops of that: what is left for everything but the products.
//
//     --only ROW    one row
//     --table       prints the rows, and runs none
//     --warmup 10   steps before
//     --steps 20    steps that are timed
//     --kernels     the kernels of one step more, by CUPTI: a line for each name and launch shape
//                   with its launches, microseconds and share, and a line with the totals: busy_ms
//                   in which any ran, of span_ms
//     --profile     one step more, between cudaProfilerStart and cudaProfilerStop: kernel_table.py
//     --smoke       tiny, once, also without a GPU
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/launch/launch.h"
#include "tessera/fsdp/handle.h"
#include "tessera/models/nets/gpt.h"
#include "tessera/models/nets/llama.h"
#include "tessera/models/parallelize/parallelize.h"
#include "tessera/models/training/trainer.h"
#include "tessera/nn/init.h"
#include "tessera/nn/optim/adam.h"
#include "tessera/nn/training/clip_grad.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/random.h"
#include "tessera/tools/bench/bench_gpu_kernels.h"
#include "tessera/tools/bench/bench_gpu_support.h"

namespace tessera {
namespace {

constexpr double kPeakTflops = 989;  // dense, bf16, H100 and H200

struct Row {
  std::string name;
  bool is_llama = false;
  std::int64_t layers = 2, dim = 16, heads = 2, ffn_dim = 32, vocab_size = 65;
  std::int64_t batch = 2, length = 8;
  bool graphs = false;
  double goal = 0;  // MFU
};

std::vector<Row> all_rows() {
  const auto gpt = [](std::string name, std::int64_t layers, std::int64_t dim, std::int64_t heads,
                      std::int64_t vocab_size, std::int64_t batch, bool graphs, double goal) {
    return Row{.name = std::move(name),
               .layers = layers,
               .dim = dim,
               .heads = heads,
               .ffn_dim = 4 * dim,
               .vocab_size = vocab_size,
               .batch = batch,
               .length = 1024,
               .graphs = graphs,
               .goal = goal};
  };
  const auto llama = [](std::string name, std::int64_t length, std::int64_t batch) {
    return Row{.name = std::move(name),
               .is_llama = true,
               .layers = 4,
               .dim = 4096,
               .heads = 32,
               .ffn_dim = 11008,
               .vocab_size = 32000,
               .batch = batch,
               .length = length,
               .goal = 0.62};
  };
  return {gpt("gpt2-124m", 12, 768, 12, 50304, 16, false, 0.40),
          gpt("gpt2-124m-graphs", 12, 768, 12, 50304, 16, true, 0.40),
          gpt("gpt2-124m-50257", 12, 768, 12, 50257, 16, false, 0.40),
          gpt("gpt2-1.5b", 48, 1600, 25, 50304, 8, false, 0.50),
          gpt("gpt2-1.5b-graphs", 48, 1600, 25, 50304, 8, true, 0.50),
          llama("llama-7b-4-blocks-2048x1", 2048, 1),
          llama("llama-7b-4-blocks-2048x8", 2048, 8),
          llama("llama-7b-4-blocks-4096x1", 4096, 1),
          llama("llama-7b-4-blocks-4096x8", 4096, 8)};
}

std::string described(const Row& row) {
  return fmt::format(
      R"("bench": "train", "row": "{}", "model": "{}", "layers": {}, "dim": {}, "heads": {}, )"
      R"("ffn_dim": {}, "vocab_size": {}, "batch": {}, "length": {}, "graphs": {})",
      row.name, row.is_llama ? "llama" : "gpt", row.layers, row.dim, row.heads, row.ffn_dim,
      row.vocab_size, row.batch, row.length, row.graphs);
}

// Floating-point operations of a step.
double operations(const Row& row) {
  const double dim = row.dim, tokens = row.batch * row.length;
  const double block = 4 * dim * dim + (row.is_llama ? 3 : 2) * dim * row.ffn_dim;
  const double weights = row.layers * block + row.vocab_size * dim;
  return tokens * (6 * weights + 12.0 * row.layers * dim * row.length);
}

// TFLOP/s of one product of matrices of n x n, after as many products as a warm GPU takes.
double product_tflops(const BenchRun& run) {
  const std::int64_t n = run.smoke ? 64 : 8192;
  const auto matrix = [&](std::string_view name) {
    const Tensor out = Tensor::empty({n, n}, {.dtype = DType::kBF16, .device = run.device});
    random::fill_normal(out, random::named_key(1, name), random::whole(out.shape()), 0, 1);
    return out;
  };
  const Tensor a = matrix("a"), b = matrix("b"), out = matrix("out");
  const int count = run.smoke ? 1 : 300;  // about half a second
  double us = 0;
  for (int round = 0; round < 2; ++round) {
    us = microseconds([&] {
      for (int i = 0; i < count; ++i) matmul_into(out, a, b, {});
      current_stream(run.device).synchronize();
    });
  }
  return 2.0 * static_cast<double>(n * n * n) * count / us / 1e6;
}

// The same random tokens at each step.
class FixedTokens final : public models::Task {
 public:
  FixedTokens(nn::Module& module, models::LanguageModel model, const Row& row, Device device)
      : module_(module), model_(std::move(model)), row_(row) {
    const auto made = [&] {
      return randint(0, row.vocab_size, {row.batch, row.length},
                     {.dtype = DType::kI64, .device = device});
    };
    tokens_ = made();
    targets_ = made();
  }
  nn::Module& module() override { return module_; }
  std::int64_t steps_per_epoch() const override { return 1; }
  models::BatchShare load(std::int64_t) override {
    return {.samples = row_.batch,
            .tokens = row_.batch * row_.length,
            .rows = row_.batch,
            .padded_rows = row_.batch,
            .count = row_.batch * row_.length};
  }
  std::vector<Tensor> inputs() const override { return {tokens_, targets_}; }
  models::LossSum loss(std::int64_t begin, std::int64_t end) override {
    const auto part = [&](const Tensor& x) { return x.narrow(0, begin, end - begin); };
    const models::LanguageModelResult result = model_.forward(part(tokens_), {});
    return {.sum = cross_entropy(result.logits, part(targets_), LossReduction::kSum)};
  }
  models::EvalMetrics evaluate() override { return {}; }

 private:
  nn::Module& module_;
  models::LanguageModel model_;
  Row row_;
  Tensor tokens_, targets_;
};

struct Settings {
  int warmup = 10;
  int steps = 20;
  bool profile = false;
  bool kernels = false;
  double product_tflops = 0;  // measured before the first row
};

// Looked up by name, so that this program needs no CUDA to build.
void call_profiler(const char* name) {
  const auto function = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, name));
  if (function == nullptr || function() != 0) std::fprintf(stderr, "%s failed\n", name);
}

// One row's model, its trainer and what was measured.
template <class Model>
class Training {
 public:
  Training(const BenchRun& run, const Settings& settings, const Row& row, distributed::World& world,
           const typename Model::Options& options)
      : run_(run),
        settings_(settings),
        row_(row),
        model_(sharded(world, options)),
        task_(*model_, models::language_model(*model_), row, world.device()),
        optimizer_(model_->parameters(), {.lr = 1e-4, .weight_decay = 0.1}),
        trainer_(world, task_, optimizer_,
                 {.max_grad_norm = 1, .cuda_graphs = row.graphs && !run.smoke}) {}

  void measure() {
    for (int i = 0; i < (run_.smoke ? 2 : settings_.warmup); ++i) step();
    std::vector<double> steps;
    for (int i = 0; i < (run_.smoke ? 1 : settings_.steps); ++i)
      steps.push_back(microseconds([&] { step(); }));
    if (settings_.profile) {
      call_profiler("cudaProfilerStart");
      step();
      call_profiler("cudaProfilerStop");
    }
    if (settings_.kernels) print_kernels();
    Parts parts;
    for (int i = 0; i < (run_.smoke ? 1 : 5); ++i) step_in_parts(parts);
    print(steps, parts);
  }

 private:
  // Microseconds of each part of a step, and of the host in all of them.
  struct Parts {
    std::vector<double> forward, backward, update, host;
  };

  static std::unique_ptr<Model> sharded(distributed::World& world,
                                        const typename Model::Options& options) {
    auto model = std::make_unique<Model>(options);
    parallelize(*model, {.mesh = world.mesh(), .precision = models::precision_named("bf16")});
    // On one rank resharding would only free the 16-bit weights, and backward cast them again.
    fsdp::of(*model).set_reshard_after_forward(false);
    nn::initialize(*model, {.seed = 1, .device = world.device()});
    return model;
  }

  void step() {
    const models::StepMetrics metrics = trainer_.step();
    current_stream(run_.device).synchronize();
    loss_ = metrics.loss;
    peak_bytes_ = std::max(peak_bytes_, metrics.peak_bytes);
  }

  void step_in_parts(Parts& parts) {
    double host = 0;
    const auto part = [&](const auto& body) {
      return microseconds([&] {
        host += microseconds(body);
        current_stream(run_.device).synchronize();
      });
    };
    models::LossSum loss;
    parts.forward.push_back(part([&] { loss = task_.loss(0, row_.batch); }));
    parts.backward.push_back(part([&] {
      backward(loss.sum * (1.0 / static_cast<double>(row_.batch * row_.length)));
      loss = {};
    }));
    parts.update.push_back(part([&] {
      const Tensor norm = nn::grad_norm(optimizer_.parameters());
      optimizer_.step({.gradient_scale = nn::clip_coefficient(1, norm)});
      optimizer_.zero_grad();
    }));
    parts.host.push_back(host);
  }

  void print_kernels() {
    if (const std::string reason = record_kernels(); !reason.empty()) {
      std::fprintf(stderr, "no kernels were recorded: %s\n", reason.c_str());
      return;
    }
    step();
    const KernelTimes times = recorded_kernels();
    double all = 0;
    for (const KernelTime& each : times.kernels) all += each.us;
    const std::string row = fmt::format(R"("bench": "train_kernels", "row": "{}")", row_.name);
    print_row(run_, row,
              fmt::format(R"("launches": {}, "kernels_ms": {:.3f}, "busy_ms": {:.3f}, )"
                          R"("span_ms": {:.3f})",
                          times.launches, all / 1e3, times.busy_us / 1e3, times.span_us / 1e3));
    for (const KernelTime& each : times.kernels)
      print_row(
          run_, row,
          fmt::format(R"("launches": {}, "us": {:.1f}, "share": {:.4f}, "blocks": {}, )"
                      R"("threads": {}, "kernel": "{}")",
                      each.launches, each.us, each.us / all, each.blocks, each.threads, each.name));
  }

  void print(const std::vector<double>& steps, const Parts& parts) const {
    const double ms = median(steps) / 1e3, tflops = operations(row_) / ms / 1e9;
    const double tokens = static_cast<double>(row_.batch * row_.length);
    print_row(run_, described(row_),
              fmt::format(R"("step_ms": {:.3f}, "step_ms_min": {:.3f}, "forward_ms": {:.3f}, )"
                          R"("backward_ms": {:.3f}, "update_ms": {:.3f}, "host_ms": {:.3f}, )"
                          R"("tokens_per_s": {:.0f}, "tflops": {:.1f}, "peak_gib": {:.2f}, )"
                          R"("loss": {:.4f}, "replayed": {}, "product_tflops": {:.1f}, )"
                          R"("of_product": {:.4f}, "ratio": {:.4f}, "goal": {})",
                          ms, *std::min_element(steps.begin(), steps.end()) / 1e3,
                          median(parts.forward) / 1e3, median(parts.backward) / 1e3,
                          median(parts.update) / 1e3, median(parts.host) / 1e3, tokens / ms * 1e3,
                          tflops, static_cast<double>(peak_bytes_) / (1 << 30), loss_,
                          trainer_.steps_replayed(), settings_.product_tflops,
                          tflops / settings_.product_tflops, tflops / kPeakTflops, row_.goal));
  }

  BenchRun run_;
  Settings settings_;
  Row row_;
  std::unique_ptr<Model> model_;
  FixedTokens task_;
  nn::optim::AdamW optimizer_;
  models::Trainer trainer_;
  double loss_ = 0;
  std::int64_t peak_bytes_ = 0;
};

void measure(const BenchRun& run, const Settings& settings, const Row& row,
             distributed::World& world) {
  if (row.is_llama) {
    Training<models::Llama>(run, settings, row, world,
                            {.layers = row.layers,
                             .vocab_size = row.vocab_size,
                             .max_seq_len = row.length,
                             .dim = row.dim,
                             .heads = row.heads,
                             .kv_heads = row.heads,
                             .ffn_dim = row.ffn_dim})
        .measure();
  } else {
    Training<models::Gpt>(run, settings, row, world,
                          {.layers = row.layers,
                           .vocab_size = row.vocab_size,
                           .max_seq_len = row.length,
                           .dim = row.dim,
                           .heads = row.heads,
                           .dropout = 0})
        .measure();
  }
}

Row made_small(Row row) {
  row.layers = 2;
  row.dim = 16;
  row.heads = 2;
  row.ffn_dim = row.is_llama ? 24 : 64;
  row.vocab_size = row.vocab_size % 2 == 0 ? 64 : 65;
  row.batch = 2;
  row.length = 8;
  return row;
}

int run_rows(int argc, char** argv, Settings settings, const std::vector<Row>& rows) {
  const BenchStart start = start_benchmark(argc, argv);
  if (!start.run) return start.exit_status;
  for (const Row& row : rows) {
    const distributed::LaunchResult done = distributed::launch(
        argc, argv,
        {.ranks = 1, .mode = distributed::LaunchMode::kThreads, .device = start.run->device},
        [&](distributed::World& world) {
          if (settings.product_tflops == 0) settings.product_tflops = product_tflops(*start.run);
          measure(*start.run, settings, start.run->smoke ? made_small(row) : row, world);
        });
    if (done.exit_code != 0) {
      std::fprintf(stderr, "%s\n", done.failure.c_str());
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;
  Settings settings;
  std::string only;
  bool table = false;
  std::vector<char*> rest = {argv[0]};  // for start_benchmark()
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    const bool is_number = name == "--warmup" || name == "--steps";
    if (name == "--profile") {
      settings.profile = true;
    } else if (name == "--kernels") {
      settings.kernels = true;
    } else if (name == "--table") {
      table = true;
    } else if (is_number && std::atoi(value.c_str()) > 0) {
      (name == "--steps" ? settings.steps : settings.warmup) = std::atoi(argv[++i]);
    } else if (name == "--only" && !value.empty()) {
      only = argv[++i];
    } else {
      rest.push_back(argv[i]);
    }
  }
  std::vector<Row> rows = all_rows();
  if (!only.empty()) std::erase_if(rows, [&](const Row& row) { return row.name != only; });
  if (rows.empty()) {
    std::fprintf(stderr, "no row is called \"%s\"; --table prints them\n", only.c_str());
    return 2;
  }
  if (table) {
    for (const Row& row : rows) std::printf("{%s}\n", described(row).c_str());
    return 0;
  }
  return run_rows(static_cast<int>(rest.size()), rest.data(), settings, rows);
}
