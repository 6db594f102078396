// Training steps of language models on one GPU, in bf16 with f32 masters:
//
//     tools/bazel run --config=cuda //tools/bench:bench_gpu_train
//     tools/bazel run --config=cuda //tools/bench:bench_gpu_train -- --only gpt2-124m
//
// Each row builds a model sharded over one rank, trains it with models::Trainer (AdamW, gradients
// clipped to 1, the same random tokens at each step) for `--warmup` steps, and times `--steps`
// steps. `step_ms` is the time of a step, `host_ms` the part of it in which the host has something
// to do; `forward_ms`, `backward_ms` and `update_ms` come from a loop of its own, which waits for
// the device after each part. `tflops` counts 6 floating-point operations for each weight of a
// product and token, and 12 layers dim length for attention over whole sequences (the convention
// of PaLM's MFU, which does not halve causal attention); `ratio` is tflops / 989, the dense peak of
// an H100 in bf16: the MFU.
//
// `--profile` runs the chosen rows' last step between cudaProfilerStart and cudaProfilerStop, for
// kernel_table.py. `--table` prints the rows. With --smoke: tiny, once, also without a GPU.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/launch/launch.h"
#include "tessera/models/nets/gpt.h"
#include "tessera/models/nets/llama.h"
#include "tessera/models/parallelize/parallelize.h"
#include "tessera/models/training/trainer.h"
#include "tessera/nn/init.h"
#include "tessera/nn/optim/adam.h"
#include "tessera/nn/training/clip_grad.h"
#include "tessera/tensor/ops/ops.h"
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
};

std::vector<Row> all_rows() {
  const auto gpt = [](std::string name, std::int64_t layers, std::int64_t dim, std::int64_t heads,
                      std::int64_t vocab_size, std::int64_t batch, bool graphs) {
    return Row{.name = std::move(name),
               .layers = layers,
               .dim = dim,
               .heads = heads,
               .vocab_size = vocab_size,
               .batch = batch,
               .length = 1024,
               .graphs = graphs};
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
               .length = length};
  };
  return {gpt("gpt2-124m", 12, 768, 12, 50304, 16, false),
          gpt("gpt2-124m-graphs", 12, 768, 12, 50304, 16, true),
          gpt("gpt2-124m-50257", 12, 768, 12, 50257, 16, false),
          gpt("gpt2-1.5b", 48, 1600, 25, 50304, 8, false),
          gpt("gpt2-1.5b-graphs", 48, 1600, 25, 50304, 8, true),
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
  const double block = row.is_llama ? 4 * dim * dim + 3 * dim * row.ffn_dim : 12 * dim * dim;
  const double weights = row.layers * block + row.vocab_size * dim;
  return tokens * (6 * weights + 12.0 * row.layers * dim * row.length);
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
};

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
      nn::clip_grads_with_norm(optimizer_.parameters(), 1, norm);
      optimizer_.step();
      optimizer_.zero_grad();
    }));
    parts.host.push_back(host);
  }

  void print(const std::vector<double>& steps, const Parts& parts) const {
    const double ms = median(steps) / 1e3, tflops = operations(row_) / ms / 1e9;
    const double tokens = static_cast<double>(row_.batch * row_.length);
    print_row(run_, described(row_),
              fmt::format(R"("step_ms": {:.3f}, "step_ms_min": {:.3f}, "forward_ms": {:.3f}, )"
                          R"("backward_ms": {:.3f}, "update_ms": {:.3f}, "host_ms": {:.3f}, )"
                          R"("tokens_per_s": {:.0f}, "tflops": {:.1f}, "peak_gib": {:.2f}, )"
                          R"("loss": {:.4f}, "replayed": {}, "ratio": {:.4f})",
                          ms, *std::min_element(steps.begin(), steps.end()) / 1e3,
                          median(parts.forward) / 1e3, median(parts.backward) / 1e3,
                          median(parts.update) / 1e3, median(parts.host) / 1e3, tokens / ms * 1e3,
                          tflops, static_cast<double>(peak_bytes_) / (1 << 30), loss_,
                          trainer_.steps_replayed(), tflops / kPeakTflops));
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
  row.ffn_dim = 32;
  row.vocab_size = row.vocab_size % 2 == 0 ? 64 : 65;
  row.batch = 2;
  row.length = 8;
  return row;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;
  Settings settings;
  std::string only;
  std::vector<char*> rest = {argv[0]};
  bool table = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    const bool has_value = i + 1 < argc;
    if (name == "--only" && has_value)
      only = argv[++i];
    else if (name == "--warmup" && has_value)
      settings.warmup = std::atoi(argv[++i]);
    else if (name == "--steps" && has_value)
      settings.steps = std::atoi(argv[++i]);
    else if (name == "--profile")
      settings.profile = true;
    else if (name == "--table")
      table = true;
    else
      rest.push_back(argv[i]);
  }
  std::vector<Row> rows;
  for (const Row& row : all_rows())
    if (only.empty() || row.name == only) rows.push_back(row);
  if (table) {
    for (const Row& row : rows) std::printf("{%s}\n", described(row).c_str());
    return 0;
  }
  const BenchStart start = start_benchmark(static_cast<int>(rest.size()), rest.data());
  if (!start.run) return start.exit_status;
  for (const Row& row : rows) {
    const distributed::LaunchResult done = distributed::launch(
        argc, argv,
        {.ranks = 1, .mode = distributed::LaunchMode::kThreads, .device = start.run->device},
        [&](distributed::World& world) {
          measure(*start.run, settings, start.run->smoke ? made_small(row) : row, world);
        });
    if (done.exit_code != 0) {
      std::fprintf(stderr, "%s\n", done.failure.c_str());
      return 1;
    }
  }
  return 0;
}
