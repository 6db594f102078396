#include "tessera/models/nets/language_model.h"

#include <string>

#include "tessera/autograd/ops/nn.h"
#include "tessera/nn/mesh/loss_parallel.h"
#include "tessera/nn/mesh/mesh_ops.h"
#include "tessera/tensor/check.h"

namespace tessera::models {
namespace {

void check_columns(const char* where, const LanguageModel& model, const Variable& logits) {
  const auto& mesh = model.vocabulary_mesh;
  const std::int64_t columns =
      mesh == nullptr ? model.vocab_size
                      : nn::part_of(model.vocab_size, *mesh, mesh->axes().front()).count;
  TESSERA_CHECK(logits.ndim() >= 1 && logits.dim(-1) == columns, where,
                "logits are {}; their last dim must have {} of a vocabulary of {} (with "
                "ParallelizeOptions::loss_parallel, give the options to language_model() too)",
                logits.shape().str(), columns, model.vocab_size);
}

}  // namespace

DecodeCache::DecodeCache(std::int64_t layers, std::int64_t capacity) {
  TESSERA_CHECK(layers >= 1, "models.DecodeCache", "got {} layers; at least 1 is needed", layers);
  for (std::int64_t i = 0; i < layers; ++i)
    layers_.emplace_back(nn::KeyValueCacheOptions{.capacity = capacity});
}

void DecodeCache::clear() {
  for (nn::KeyValueCache& layer : layers_) layer.clear();
}

Variable token_loss(const LanguageModel& model, const Variable& logits, const Tensor& targets) {
  check_columns("models.token_loss", model, logits);
  const CrossEntropyOptions options{.reduction = LossReduction::kSum};
  if (model.vocabulary_mesh == nullptr) return cross_entropy(logits, targets, options);
  return nn::parallel_cross_entropy(logits, targets, model.vocabulary_mesh,
                                    model.vocabulary_mesh->axes().front(),
                                    {.classes = model.vocab_size, .loss = options});
}

Variable all_logits(const LanguageModel& model, const Variable& logits) {
  check_columns("models.all_logits", model, logits);
  if (model.vocabulary_mesh == nullptr) return logits;
  return nn::gather_from_ranks(logits, model.vocabulary_mesh, model.vocabulary_mesh->axes().front(),
                               {.dim = -1, .extent = model.vocab_size});
}

}  // namespace tessera::models
