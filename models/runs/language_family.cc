#include "tessera/models/runs/language_family.h"

#include <set>

#include "tessera/models/nets/gpt.h"
#include "tessera/models/nets/llama.h"
#include "tessera/models/nets/mixture_of_experts.h"
#include "tessera/models/nets/token_model.h"
#include "tessera/models/nets/transformer.h"
#include "tessera/models/runs/language_family_of.h"
#include "tessera/models/runs/words.h"

namespace tessera::models::runs {
namespace {

constexpr SizeOption kLayers{.name = "layers", .meaning = "blocks"};
constexpr SizeOption kDim{.name = "dim", .meaning = "features of a token between the blocks"};
constexpr SizeOption kHeads{.name = "heads", .meaning = "attention heads; a divisor of --dim"};
constexpr SizeOption kKvHeads{.name = "kv-heads",
                              .meaning = "heads of keys and values; a divisor of --heads"};

std::unique_ptr<LanguageFamily> make_transformer() {
  return std::make_unique<LanguageFamilyOf<Transformer, TransformerPreset>>(
      LanguageFamilyOf<Transformer, TransformerPreset>::Parts{
          .name = "transformer",
          .description = "The decoder-only Transformer that sharding is tested with.",
          .presets = &transformer_presets,
          .preset = &transformer_preset,
          .fields = {size_field(kLayers, &ModelArgs::layers), size_field(kDim, &ModelArgs::dim),
                     size_field(kHeads, &ModelArgs::heads)},
          // The model's own initial values are PyTorch's. With tied embeddings they give a first
          // loss of 65, which takes long to decrease.
          .start = [](Transformer& model, const ModelArgs& args) {
            start_as_gpt2(model, args.layers);
          }});
}

std::unique_ptr<LanguageFamily> make_gpt() {
  return std::make_unique<LanguageFamilyOf<Gpt, GptPreset>>(LanguageFamilyOf<Gpt, GptPreset>::Parts{
      .name = "gpt",
      .description = "GPT-2's architecture: learned positions, LayerNorm, GELU.",
      .presets = &gpt_presets,
      .preset = &gpt_preset,
      .fields = {size_field(kLayers, &GptOptions::layers), size_field(kDim, &GptOptions::dim),
                 size_field(kHeads, &GptOptions::heads)}});
}

std::unique_ptr<LanguageFamily> make_llama() {
  return std::make_unique<LanguageFamilyOf<Llama, LlamaPreset>>(
      LanguageFamilyOf<Llama, LlamaPreset>::Parts{
          .name = "llama",
          .description = "LLaMA's architecture: rotary positions, RMSNorm, SwiGLU, grouped heads.",
          .presets = &llama_presets,
          .preset = &llama_preset,
          .fields = {
              size_field(kLayers, &LlamaOptions::layers), size_field(kDim, &LlamaOptions::dim),
              size_field(kHeads, &LlamaOptions::heads),
              size_field(kKvHeads, &LlamaOptions::kv_heads),
              size_field({.name = "ffn-dim", .meaning = "features inside the feed-forward part"},
                         &LlamaOptions::ffn_dim)}});
}

std::unique_ptr<LanguageFamily> make_moe() {
  using Options = MixtureOfExpertsOptions;
  return std::make_unique<LanguageFamilyOf<MixtureOfExperts, MixtureOfExpertsPreset>>(
      LanguageFamilyOf<MixtureOfExperts, MixtureOfExpertsPreset>::Parts{
          .name = "moe",
          .description = "A mixture of experts: each token visits some of the feed-forward parts.",
          .presets = &mixture_of_experts_presets,
          .preset = &mixture_of_experts_preset,
          .fields = {size_field(kLayers, &Options::layers), size_field(kDim, &Options::dim),
                     size_field(kHeads, &Options::heads), size_field(kKvHeads, &Options::kv_heads),
                     size_field({.name = "ffn-dim", .meaning = "features inside each expert"},
                                &Options::ffn_dim),
                     size_field({.name = "experts", .meaning = "experts of a block"},
                                &Options::experts),
                     size_field({.name = "top-k-experts", .meaning = "experts that a token visits"},
                                &Options::top_k_experts),
                     size_field(
                         {.name = "capacity-factor",
                          .meaning = "an expert takes this times its even share of the tokens; 0: "
                                     "all that come"},
                         &Options::capacity_factor),
                     size_field({.name = "balance-loss",
                                 .meaning = "weight of the loss that spreads tokens over experts"},
                                &Options::balance_loss)},
          .expert_part = [](const Options& options) {
            return static_cast<double>(options.top_k_experts) /
                   static_cast<double>(options.experts);
          }});
}

const std::vector<std::unique_ptr<LanguageFamily>>& families() {
  static const auto list = [] {
    std::vector<std::unique_ptr<LanguageFamily>> made;
    made.push_back(make_transformer());
    made.push_back(make_gpt());
    made.push_back(make_llama());
    made.push_back(make_moe());
    return made;
  }();
  return list;
}

}  // namespace

const std::vector<std::string>& language_family_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& family : families()) list.push_back(family->name());
    return list;
  }();
  return names;
}

const LanguageFamily& language_family(const std::string& name) {
  for (const auto& family : families())
    if (family->name() == name) return *family;
  throw_error<InvalidArgument>("runs.language_family", "there is no model {}; use {}", name,
                               joined(language_family_names(), ", "));
}

std::int64_t count_matmul_parameters(nn::Module& module,
                                     const std::function<double(const std::string&)>& part) {
  // A lookup table multiplies nothing, unless it is also the weight of a linear layer.
  std::set<const void*> tables, weights;
  for (const nn::NamedModule& named : module.named_modules())
    for (const nn::NamedParameter& own : named.module->own_parameters()) {
      const bool is_table = dynamic_cast<nn::Embedding*>(named.module) != nullptr;
      (is_table ? tables : weights).insert(own.parameter.id());
    }
  double count = 0;
  for (const nn::NamedParameter& named : module.named_parameters()) {
    const Shape& shape = named.parameter.spec().global_shape;
    const void* id = named.parameter.id();
    if (shape.ndim() < 2 || (tables.contains(id) && !weights.contains(id))) continue;
    count += part(named.name) * static_cast<double>(shape.numel());
  }
  return static_cast<std::int64_t>(count);
}

}  // namespace tessera::models::runs
