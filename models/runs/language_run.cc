#include "tessera/models/runs/language_run.h"

#include <cstdint>
#include <vector>

#include "tessera/models/generate.h"

namespace tessera::models::runs {

std::unique_ptr<LanguageNet> build_net(const TrainOptions& options, std::int64_t vocab_size) {
  return language_family(options.model)
      .build({.preset = options.preset,
              .sizes = options.sizes,
              .vocab_size = vocab_size,
              .max_seq_len = options.seq_len,
              .dropout = options.dropout,
              .dtype = precision_named(options.precision).storage});
}

ParallelizeOptions parallelize_options(const TrainOptions& options, const RunMeshes& meshes) {
  return {.mesh = meshes.shard,
          .shard = shard_mode_named(options.shard),
          .precision = precision_named(options.precision),
          .recompute = recompute_mode_named(options.recompute),
          .tensor_mesh = meshes.tensor};
}

LanguageRun build_on_ranks(const distributed::World& world, const TrainOptions& options,
                           std::int64_t vocab_size) {
  LanguageRun run{.precision = precision_named(options.precision),
                  .meshes = make_meshes(world, plan_mesh(options)),
                  .net = build_net(options, vocab_size)};
  ParallelizeOptions parallel = parallelize_options(options, run.meshes);
  parallel.loss_parallel = true;  // losses and generated text take the logits in parts
  run.net->parallelize(parallel);
  return run;
}

std::string generate_text(const LanguageModel& model, const data::Tokenizer& tokenizer,
                          const TextRequest& request,
                          const std::function<void(const std::string&)>& on_text) {
  std::vector<std::int32_t> prompt = tokenizer.encode(request.prompt);
  if (prompt.empty()) prompt.push_back(tokenizer.end_of_text());
  std::string text;
  const auto take = [&](std::int32_t token) {
    const std::string piece = tokenizer.decode(std::vector{token});
    text += piece;
    if (on_text) on_text(piece);
  };
  generate(model, prompt,
           {.max_tokens = request.max_tokens,
            .temperature = request.temperature,
            .top_k = request.top_k,
            .top_p = request.top_p,
            .seed = request.seed,
            .stop_token = tokenizer.end_of_text()},
           take);
  return text;
}

std::int64_t count_parameters(nn::Module& module) {
  std::int64_t count = 0;
  for (const nn::Parameter& parameter : module.parameters())
    count += parameter.spec().global_shape.numel();
  return count;
}

}  // namespace tessera::models::runs
