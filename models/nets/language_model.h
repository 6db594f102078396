#pragma once

/// The interface of a language model for training, evaluation and generation, whatever its class.
///
/// A language model is a Layer with
///
///     Result forward(const Variable& tokens, const DecodeCall& call = {});
///     std::int64_t vocab_size() const;     // entries of the last dim of the logits
///     std::int64_t max_length() const;     // positions that it can compute
///     std::int64_t cached_layers() const;  // attention layers: caches that decoding needs
///
/// where tokens [batch, length] are integers in [0, vocab_size), length <= max_length, batch may be
/// 0, and Result is either Variable, the logits [batch, length, vocab_size], or
/// LanguageModelResult. The logits at a position depend only on the tokens up to it. They have the
/// dtype that the model computes in; losses compute in f32 inside, with logits of 16 bits too. On a
/// GPU their rows may be longer than vocab_size (nn::LinearOptions::pitch): a view, not contiguous.
/// Tensor-parallel ranks may each return their chunk of the vocabulary
/// (ParallelizeOptions::loss_parallel).
///
///     LanguageModel erased = language_model(gpt);   // gpt outlives it

#include <concepts>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "tessera/autograd/variable.h"
#include "tessera/nn/layers/transformer/key_value_cache.h"
#include "tessera/nn/mesh/mesh.h"
#include "tessera/nn/module.h"
#include "tessera/nn/visit.h"

namespace tessera::models {

/// The keys and values of one batch being decoded, for all attention layers of a model. Only the
/// rank's own thread may use it.
class DecodeCache {
 public:
  /// Initial room for `capacity` positions. Throws InvalidArgument if either argument is below 1.
  explicit DecodeCache(std::int64_t layers, std::int64_t capacity = 64);
  nn::KeyValueCache& layer(std::int64_t index) {
    return layers_.at(static_cast<std::size_t>(index));
  }
  /// Number of positions so far: the position of the next token.
  std::int64_t length() const { return layers_.front().length(); }
  void clear();

 private:
  std::deque<nn::KeyValueCache> layers_;
};

/// The arguments of forward besides the tokens.
struct DecodeCall {
  /// The tokens continue those in the cache, which is extended by them. Only without gradients. Not
  /// owned; null: the sequence starts here.
  DecodeCache* cache = nullptr;
};

/// The result of a model that returns more than logits.
struct LanguageModelResult {
  Variable logits;  ///< [batch, length, vocab_size]
  /// 0-d, already weighted: added to the mean loss of the tokens. Equal on all ranks that share a
  /// batch. Undefined: there is none.
  Variable auxiliary_loss = {};

  template <class F>
  void visit_tensors(F&& f) {
    f(logits, auxiliary_loss);
  }
};

struct LanguageModel {
  nn::Module& module;
  std::function<LanguageModelResult(const Tensor& tokens, const DecodeCall& call)> forward;
  std::int64_t vocab_size = 0;
  std::int64_t max_length = 0;
  std::int64_t cached_layers = 0;
  /// Where given, a mesh of one axis: each of its ranks has its chunk of the logits of `forward`.
  /// Null: all logits.
  std::shared_ptr<const nn::Mesh> vocabulary_mesh = nullptr;
};

/// The cross entropy of forward's logits, or this rank's chunk of them, summed over the tokens.
/// Collective over the vocabulary_mesh. Throws InvalidArgument for logits of another number of
/// columns.
Variable token_loss(const LanguageModel& model, const Variable& logits, const Tensor& targets);
/// All logits [..., vocab_size], from forward's. Collective over the vocabulary_mesh. Throws as
/// token_loss.
Variable all_logits(const LanguageModel& model, const Variable& logits);

template <class Model>
concept IsLanguageModel = std::derived_from<Model, nn::Module> &&
    requires(Model& model, const Variable& tokens, const DecodeCall& call) {
  LanguageModelResult{model(tokens, call)};
  { model.vocab_size() } -> std::convertible_to<std::int64_t>;
  { model.max_length() } -> std::convertible_to<std::int64_t>;
  { model.cached_layers() } -> std::convertible_to<std::int64_t>;
};

template <IsLanguageModel Model>
LanguageModel language_model(Model& model) {
  return {.module = model,
          .forward =
              [&model](const Tensor& tokens, const DecodeCall& call) {
                return LanguageModelResult{model(Variable(tokens), call)};
              },
          .vocab_size = model.vocab_size(),
          .max_length = model.max_length(),
          .cached_layers = model.cached_layers()};
}

}  // namespace tessera::models

template <>
inline constexpr bool tessera::nn::holds_no_tensors<tessera::models::DecodeCall> = true;
