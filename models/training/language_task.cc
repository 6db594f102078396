#include "tessera/models/training/language_task.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "tessera/distributed/mesh/placement.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/models/eval_scope.h"
#include "tessera/models/training/task.h"
#include "tessera/nn/training/loss.h"
#include "tessera/nn/training/running_mean.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/memory/transfer.h"

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
  TESSERA_CHECK(options.prefetch >= 0, kWhere, "prefetch is {}; it must be 0 or more batches",
                options.prefetch);
  return mesh;
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
      loader_(train, {.batch_size = options.batch,
                      .shuffle = true,
                      .pad = false,
                      .seed = options.seed,
                      .workers = options.prefetch > 0 ? 1 : 0,
                      .prefetch = std::max(1, options.prefetch),
                      .ranks = data_.size(),
                      .rank = data_.coordinates().front(),
                      .device = kCpu}) {
  checked(model, validation, tokenizer);
}

std::int64_t LanguageTask::steps_per_epoch() const { return loader_.size(); }

BatchShare LanguageTask::load(std::int64_t step) {
  const auto [tokens, targets] = loader_.load(step);
  tokens_.load(tokens, world_.device());
  targets_.load(targets, world_.device());
  BatchShare share = share_at(loader_.position());
  share.tokens = share.samples * tokens.dim(1);
  share.count = share.rows * tokens.dim(1);
  return share;
}

LossSum LanguageTask::loss(std::int64_t begin, std::int64_t end) {
  const Tensor tokens = tokens_.part(begin, end), targets = targets_.part(begin, end);
  const LanguageModelResult result = model_.forward(tokens, {});
  return {.sum = token_loss(model_, result.logits, targets), .auxiliary = result.auxiliary_loss};
}

std::string LanguageTask::data_fingerprint() const {
  const data::PackedSequences& train = loader_.data();
  return fmt::format("{} sequences of {} tokens ({:016x}) in batches of {}, seed {}", train.size(),
                     train.length(), train.fingerprint(), options_.batch, options_.seed);
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
  const distributed::Chunk chunk =
      distributed::chunk_of(validation_.size(), data_.size(), data_.coordinates().front());
  // As many sequences per pass as in training; this determines the memory of an evaluation.
  const std::int64_t share = (options_.batch + data_.size() - 1) / data_.size();
  const std::int64_t rows_at_once =
      options_.micro_batch > 0 ? std::min(share, options_.micro_batch) : share;
  nn::RunningMean loss, byte_loss;
  for (std::int64_t at = 0; at < chunk.padded_rows; at += rows_at_once) {
    const std::int64_t begin = std::min(chunk.begin + at, chunk.end);
    std::vector<std::int64_t> rows(
        static_cast<std::size_t>(std::min(rows_at_once, chunk.end - begin)));
    std::iota(rows.begin(), rows.end(), begin);
    const auto [tokens, targets] = nn::data::batch_of(validation_, rows, kCpu);
    double bytes = 0;
    for (const std::int64_t target : targets.to_vector<std::int64_t>()) bytes += bytes_of(target);
    const LanguageModelResult result = model_.forward(to_device(tokens, world_.device()), {});
    const Tensor wanted = to_device(targets, world_.device());
    const double sum = host_value(token_loss(model_, result.logits, wanted).tensor());
    loss.add_sum(sum, static_cast<double>(targets.numel()));
    byte_loss.add_sum(sum, bytes);
  }
  const auto over_ranks = [&](const nn::RunningMean& mean) {
    return mean.over_ranks(data_, data_.axes().front(), world_.device());
  };
  EvalMetrics metrics{.loss = over_ranks(loss).mean()};
  const nn::RunningMean per_byte = over_ranks(byte_loss);
  if (per_byte.count() > 0)
    metrics.bits_per_byte = per_byte.sum() / std::log(2.0) / per_byte.count();
  return metrics;
}

}  // namespace tessera::models
