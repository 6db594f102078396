#include "tessera/tests/models/language/tiny_model.h"

#include <stdexcept>
#include <utility>

#include "tessera/models/data/tokenize.h"

namespace tessera::testing {
namespace {

template <class Model>
class TinyModelOf final : public TinyModel {
 public:
  explicit TinyModelOf(const typename Model::Options& options) : model_(options) {}
  nn::Module& module() override { return model_; }
  models::LanguageModel language_model() override {
    return models::language_model(model_, parallel_);
  }
  void parallelize(const models::ParallelizeOptions& options) override {
    models::parallelize(model_, options);
    parallel_ = options;
  }

 private:
  Model model_;
  models::ParallelizeOptions parallel_;
};

std::unique_ptr<TinyModel> transformer(const TinyModelOptions& options) {
  return std::make_unique<TinyModelOf<models::Transformer>>(
      models::ModelArgs{.layers = 2,
                        .vocab_size = kTinyVocabulary,
                        .max_seq_len = kTinyLength,
                        .dim = 12,
                        .heads = 2,
                        .dropout = options.dropout,
                        .dtype = options.dtype});
}

std::unique_ptr<TinyModel> gpt(const TinyModelOptions& options) {
  return std::make_unique<TinyModelOf<models::Gpt>>(
      models::GptOptions{.layers = 2,
                         .vocab_size = kTinyVocabulary,
                         .max_seq_len = kTinyLength,
                         .dim = 12,
                         .heads = 2,
                         .dropout = options.dropout,
                         .dtype = options.dtype});
}

std::unique_ptr<TinyModel> llama(const TinyModelOptions& options) {
  return std::make_unique<TinyModelOf<models::Llama>>(
      models::LlamaOptions{.layers = 2,
                           .vocab_size = kTinyVocabulary,
                           .max_seq_len = kTinyLength,
                           .dim = 16,
                           .heads = 4,
                           .kv_heads = 2,
                           .ffn_dim = 21,
                           .dropout = options.dropout,
                           .dtype = options.dtype});
}

std::unique_ptr<TinyModel> mixture(const TinyModelOptions& options) {
  return std::make_unique<TinyModelOf<models::MixtureOfExperts>>(
      models::MixtureOfExpertsOptions{.layers = 2,
                                      .vocab_size = kTinyVocabulary,
                                      .max_seq_len = kTinyLength,
                                      .dim = 16,
                                      .heads = 4,
                                      .kv_heads = 2,
                                      .ffn_dim = 9,
                                      .experts = 5,
                                      .top_k_experts = 2,
                                      .capacity_factor = 2.5,  // an expert has room for all tokens
                                      .balance_loss = 0.05,
                                      .z_loss = 0.001,
                                      .dropout = options.dropout,
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

namespace {

constexpr std::int32_t kEnd = kTinyVocabulary - 1;

std::int64_t repeats(std::int64_t token) { return 1 + token % 3; }

}  // namespace

LetterTokenizer::LetterTokenizer() {
  for (std::int64_t token = 0; token + 1 < kTinyVocabulary; ++token)
    bytes_.push_back(repeats(token));
  bytes_.push_back(0);
}

std::vector<std::int32_t> LetterTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  for (std::size_t at = 0; at < text.size();) {
    tokens.push_back(text[at] - 'a');
    at += static_cast<std::size_t>(repeats(tokens.back()));
  }
  return tokens;
}

std::string LetterTokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) {
    if (token != end_of_text()) {
      text.append(static_cast<std::size_t>(repeats(token)), static_cast<char>('a' + token));
    }
  }
  return text;
}

std::shared_ptr<const models::data::TokenSpan> letter_stream(std::int64_t count,
                                                             std::uint32_t seed) {
  std::vector<std::int32_t> tokens;
  std::uint32_t state = seed;
  std::int32_t token = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 1664525 + 1013904223;
    const auto choice = static_cast<std::int32_t>(state >> 24);
    token = choice < 13 ? kEnd : (3 * token + choice % 2) % kEnd;
    tokens.push_back(token);
  }
  return models::data::hold_tokens({std::move(tokens)}, kTinyVocabulary);
}

}  // namespace tessera::testing
