#include "tessera/tests/models/language/tiny_model.h"

#include <stdexcept>

#include "tessera/tests/models/language/sequences.h"

namespace tessera::testing {
namespace {

template <class Model>
class TinyModelOf final : public TinyModel {
 public:
  explicit TinyModelOf(const typename Model::Options& options) : model_(options) {}
  nn::Module& module() override { return model_; }
  models::LanguageModel language_model() override { return models::language_model(model_); }
  void parallelize(const models::ParallelizeOptions& options) override {
    models::parallelize(model_, options);
  }

 private:
  Model model_;
};

std::unique_ptr<TinyModel> transformer(const TinyModelOptions& options) {
  return std::make_unique<TinyModelOf<models::Transformer>>(
      models::ModelArgs{.n_layers = 2,
                        .vocab_size = kTinyVocabulary,
                        .max_seq_len = kTinyLength,
                        .dim = 12,
                        .n_heads = 2,
                        .dropout_p = options.dropout,
                        .dtype = options.dtype});
}

std::unique_ptr<TinyModel> gpt(const TinyModelOptions& options) {
  return std::make_unique<TinyModelOf<models::Gpt>>(
      models::GptOptions{.n_layers = 2,
                         .vocab_size = kTinyVocabulary,
                         .max_seq_len = kTinyLength,
                         .dim = 12,
                         .n_heads = 2,
                         .dropout_p = options.dropout,
                         .dtype = options.dtype});
}

std::unique_ptr<TinyModel> llama(const TinyModelOptions& options) {
  return std::make_unique<TinyModelOf<models::Llama>>(
      models::LlamaOptions{.n_layers = 2,
                           .vocab_size = kTinyVocabulary,
                           .max_seq_len = kTinyLength,
                           .dim = 16,
                           .n_heads = 4,
                           .n_kv_heads = 2,
                           .ffn_dim = 21,
                           .dropout_p = options.dropout,
                           .dtype = options.dtype});
}

std::unique_ptr<TinyModel> mixture(const TinyModelOptions& options) {
  return std::make_unique<TinyModelOf<models::MixtureOfExperts>>(
      models::MixtureOfExpertsOptions{.n_layers = 2,
                                      .vocab_size = kTinyVocabulary,
                                      .max_seq_len = kTinyLength,
                                      .dim = 16,
                                      .n_heads = 4,
                                      .n_kv_heads = 2,
                                      .ffn_dim = 9,
                                      .n_experts = 5,
                                      .top_k = 2,
                                      .capacity_factor = 2.5,  // an expert has room for all tokens
                                      .balance_loss_weight = 0.05,
                                      .z_loss_weight = 0.001,
                                      .dropout_p = options.dropout,
                                      .dtype = options.dtype});
}

}  // namespace

const std::vector<std::string>& tiny_model_names() {
  static const std::vector<std::string> names = {"transformer", "gpt", "llama", "moe"};
  return names;
}

std::unique_ptr<TinyModel> tiny_model(const std::string& name, const TinyModelOptions& options) {
  if (name == "transformer") return transformer(options);
  if (name == "gpt") return gpt(options);
  if (name == "llama") return llama(options);
  if (name == "moe") return mixture(options);
  throw std::invalid_argument("no tiny model has the name " + name);
}

}  // namespace tessera::testing
