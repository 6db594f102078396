#include "tessera/tools/program/language_run.h"

#include "tessera/models/generate.h"

namespace tessera::tools {

std::unique_ptr<LanguageNet> build_net(const TrainOptions& options, std::int64_t vocab_size) {
  return language_family(options.model)
      .build({.preset = options.preset,
              .sizes = options.sizes,
              .vocab_size = vocab_size,
              .max_seq_len = options.seq_len,
              .dropout = options.dropout,
              .dtype = models::precision_named(options.precision).storage});
}

LanguageRun build_on_ranks(const distributed::World& world, const TrainOptions& options,
                           std::int64_t vocab_size) {
  LanguageRun run{.precision = models::precision_named(options.precision),
                  .meshes = make_meshes(world, plan_mesh(options)),
                  .net = build_net(options, vocab_size)};
  run.net->parallelize({.mesh = run.meshes.shard,
                        .shard = models::shard_mode_named(options.shard),
                        .precision = run.precision,
                        .recompute = models::recompute_mode_named(options.recompute),
                        .tensor_mesh = run.meshes.tensor});
  return run;
}

std::string generate_text(LanguageNet& net, const models::data::Tokenizer& tokenizer,
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
  models::generate(net.language_model(), prompt,
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

}  // namespace tessera::tools
