#include "tessera/models/training/language_task.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/mesh/placement.h"
#include "tessera/models/eval_scope.h"
#include "tessera/models/training/task.h"
#include "tessera/nn/training/loss.h"
#include "tessera/tensor/check.h"

namespace tessera::models {
namespace {

constexpr const char* kWhere = "models.LanguageTask";

const LanguageModel& checked(const LanguageModel& model, const data::PackedSequences& sequences,
                             const data::Tokenizer& tokenizer) {
  TESSERA_CHECK(sequences.length() <= model.max_length, kWhere,
                "sequences of {} tokens, the model computes {}; shorten them, or make the model "
                "longer",
                sequences.length(), model.max_length);
  TESSERA_CHECK(tokenizer.vocab_size() <= model.vocab_size, kWhere,
                "{} has {} tokens, the model {} logits; give it as many", tokenizer.name(),
                tokenizer.vocab_size(), model.vocab_size);
  return model;
}

distributed::DeviceMesh data_mesh(const distributed::World& world,
                                  const LanguageTaskOptions& options) {
  const distributed::DeviceMesh mesh =
      options.data_mesh.defined() ? options.data_mesh : world.mesh();
  TESSERA_CHECK(mesh.ndim() == 1, kWhere,
                "data_mesh is {}; it has one axis, of the ranks that share the batch", mesh.str());
  TESSERA_CHECK(options.micro_batch >= 0, kWhere, "micro_batch is {}; it is at least 0",
                options.micro_batch);
  return mesh;
}

Variable cross_entropy_sum(const Variable& logits, const Tensor& targets) {
  return cross_entropy(logits, targets, Reduction::kSum);
}

}  // namespace

LanguageTask::LanguageTask(distributed::World& world, LanguageModel model,
                           const data::PackedSequences& train,
                           const data::PackedSequences& validation,
                           const data::Tokenizer& tokenizer, const LanguageTaskOptions& options)
    : world_(world),
      model_(checked(model, train, tokenizer)),
      validation_(validation),
      options_(options),
      data_(data_mesh(world, options)),
      token_bytes_(tokenizer.token_bytes()),
      loader_(train, {.batch = options.batch,
                      .seed = options.seed,
                      .ranks = data_.size(),
                      .rank = data_.coordinates().front(),
                      .prefetch = options.prefetch}) {
  checked(model, validation, tokenizer);
}

std::int64_t LanguageTask::steps_per_epoch() const { return loader_.steps_per_epoch(); }

BatchShare LanguageTask::load(std::int64_t step) {
  const data::TokenBatch batch = loader_.load(step);
  tokens_.load(batch.tokens, world_.device());
  targets_.load(batch.targets, world_.device());
  const std::int64_t length = batch.tokens.dim(1);
  return {.samples = batch.samples,
          .tokens = batch.samples * length,
          .first_sample = batch.first_sample,
          .rows = batch.rows(),
          .padded_rows = batch.padded_rows,
          .count = batch.rows() * length};
}

LossSum LanguageTask::loss(std::int64_t begin, std::int64_t end) {
  const Tensor tokens = tokens_.part(begin, end), targets = targets_.part(begin, end);
  const LanguageModelResult result = model_.forward(tokens, {});
  return {.sum = cross_entropy_sum(result.logits, targets), .auxiliary = result.auxiliary_loss};
}

double LanguageTask::bytes_of(std::int64_t token) const {
  const auto known = static_cast<std::int64_t>(token_bytes_.size());
  TESSERA_CHECK(token >= 0 && token < known, kWhere,
                "the text has token {}, the tokenizer {} tokens; tokenize it with this one", token,
                known);
  return static_cast<double>(token_bytes_[static_cast<std::size_t>(token)]);
}

EvalMetrics LanguageTask::evaluate() {
  const EvalScope scope(model_.module);
  const std::int64_t length = validation_.length();
  const distributed::Chunk chunk =
      distributed::chunk_of(validation_.count(), data_.size(), data_.coordinates().front());
  // As many sequences per pass as in training; this determines the memory of an evaluation.
  const std::int64_t share = (options_.batch + data_.size() - 1) / data_.size();
  const std::int64_t rows_at_once =
      options_.micro_batch > 0 ? std::min(share, options_.micro_batch) : share;
  double loss_sum = 0, count = 0, bytes = 0;
  std::vector<std::int64_t> sequence(static_cast<std::size_t>(length + 1));
  for (std::int64_t at = 0; at < chunk.padded_rows; at += rows_at_once) {
    const std::int64_t begin = std::min(chunk.begin + at, chunk.end);
    const std::int64_t end = std::min(begin + rows_at_once, chunk.end);
    std::vector<std::int64_t> tokens, targets;
    for (std::int64_t row = begin; row < end; ++row) {
      validation_.read(row, sequence);
      tokens.insert(tokens.end(), sequence.begin(), sequence.end() - 1);
      targets.insert(targets.end(), sequence.begin() + 1, sequence.end());
    }
    for (const std::int64_t target : targets) bytes += bytes_of(target);
    count += static_cast<double>(targets.size());
    const Shape shape{end - begin, length};
    const LanguageModelResult result =
        model_.forward(Tensor::from_vector(tokens, shape, world_.device()), {});
    const Tensor wanted = Tensor::from_vector(targets, shape, world_.device());
    loss_sum += host_value(cross_entropy_sum(result.logits, wanted).tensor());
  }
  const std::array<double, 3> mine = {loss_sum, count, bytes};
  std::array<double, 3> all = {};
  const std::vector<double> ranks = gather_figures(*data_.group(), mine);
  for (std::size_t i = 0; i < ranks.size(); ++i) all[i % all.size()] += ranks[i];
  EvalMetrics metrics{.loss = all[0] / all[1]};
  if (all[2] > 0) metrics.bits_per_byte = all[0] / std::log(2.0) / all[2];
  return metrics;
}

}  // namespace tessera::models
