// GPT, LLaMA and the encoder-decoder, sharded over ranks, train to the numbers of the unsharded
// models, in every mode, with recomputation and tensor parallelism, and decode to the same logits.

#include <catch2/catch.hpp>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/distributed/mesh/placement.h"
#include "tessera/models/generate.h"
#include "tessera/nn/init.h"
#include "tessera/tensor/error.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tests/models/parallel_reference.h"
#include "tessera/tests/models/token_model_checks.h"
#include "tessera/tests/support/fsdp/sharding_modes.h"

namespace tessera::models {
namespace {

using testing::DataPlace;
using testing::kSamples;
using testing::RankTest;
using testing::Subject;
using testing::token_input;

constexpr std::int64_t kVocab = 13, kLength = 5;

Variable samples(std::int64_t begin, std::int64_t end) {
  return Variable(token_input(kSamples, kLength, kVocab).tensor().slice(0, begin, end));
}
Variable columns(std::int64_t begin, std::int64_t end) {
  return Variable(token_input(kSamples, kLength, kVocab).tensor().slice(1, begin, end));
}

template <class Model>
Subject language_subject(const typename Model::Options& options) {
  const auto model = std::make_shared<Model>(options);
  return {.module = model,
          .logits = [model](std::int64_t begin,
                            std::int64_t end) { return (*model)(samples(begin, end)); },
          .decoded =
              [model] {
                DecodeCache cache(model->cached_layers());
                const DecodeCall call{.cache = &cache};
                const Tensor first = (*model)(columns(0, 3), call).tensor();
                return cat(std::vector{first, (*model)(columns(3, kLength), call).tensor()}, 1);
              },
          .parallelize = [model](const ParallelizeOptions& to) { parallelize(*model, to); }};
}

Subject gpt() {
  return language_subject<Gpt>({.layers = 2,
                                .vocab_size = kVocab,
                                .max_seq_len = kLength,
                                .dim = 12,
                                .heads = 2,
                                .dropout = 0.2,
                                .dtype = DType::kF64});
}

Subject untied_gpt() {
  return language_subject<Gpt>({.layers = 1,
                                .vocab_size = kVocab,
                                .max_seq_len = kLength,
                                .dim = 12,
                                .heads = 2,
                                .dropout = 0.2,
                                .weight_tying = false,
                                .dtype = DType::kF64});
}

Subject llama() {
  return language_subject<Llama>({.layers = 2,
                                  .vocab_size = kVocab,
                                  .max_seq_len = kLength,
                                  .dim = 16,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .ffn_dim = 9,
                                  .dropout = 0.2,
                                  .dtype = DType::kF64});
}

// true: the last tokens of every other source.
Tensor source_padding(std::int64_t begin, std::int64_t end) {
  const Tensor padding = zeros({kSamples, kLength}, {.dtype = DType::kBool});
  for (std::int64_t i = 0; i < kSamples; i += 2)
    fill_(padding.select(0, i).slice(0, 3, kLength), 1);
  return padding.slice(0, begin, end);
}

Subject encoder_decoder_of(const EncoderDecoderOptions& options) {
  const auto model = std::make_shared<EncoderDecoder>(options);
  return {.module = model,
          .logits =
              [model](std::int64_t begin, std::int64_t end) {
                const Variable source(samples(begin, end).tensor().slice(1, 1, kLength));
                return (*model)(
                    source, samples(begin, end),
                    EncoderDecoderCall{.source_padding =
                                           source_padding(begin, end).slice(1, 1, kLength)});
              },
          .decoded =
              [model] {
                EncoderDecoderCache cache(model->cached_layers());
                EncoderDecoderCall call{
                    .source_padding = source_padding(0, kSamples).slice(1, 1, kLength),
                    .cache = &cache};
                const Tensor first = (*model)(columns(1, kLength), columns(0, 3), call).tensor();
                call.source_padding = Tensor();
                const Tensor rest = (*model)(Variable(), columns(3, kLength), call).tensor();
                return cat(std::vector{first, rest}, 1);
              },
          .parallelize = [model](const ParallelizeOptions& to) { parallelize(*model, to); }};
}

Subject encoder_decoder() {
  return encoder_decoder_of({.encoder_layers = 1,
                             .decoder_layers = 2,
                             .vocab_size = kVocab,
                             .max_seq_len = kLength,
                             .dim = 12,
                             .heads = 2,
                             .ffn_dim = 9,
                             .dropout = 0.2,
                             .dtype = DType::kF64});
}

Subject untied_encoder_decoder() {
  return encoder_decoder_of({.encoder_layers = 1,
                             .decoder_layers = 1,
                             .vocab_size = kVocab,
                             .max_seq_len = kLength,
                             .dim = 12,
                             .heads = 2,
                             .ffn_dim = 9,
                             .dropout = 0.2,
                             .positions = PositionKind::kLearned,
                             .share_embeddings = false,
                             .weight_tying = false,
                             .dtype = DType::kF64});
}

struct Way {
  ShardMode shard;
  RecomputeMode recompute;
};
const std::vector<Way>& ways() {
  static const std::vector<Way> all = {
      {ShardMode::kFull, RecomputeMode::kNone},      {ShardMode::kFull, RecomputeMode::kFull},
      {ShardMode::kFull, RecomputeMode::kSelective}, {ShardMode::kGrad, RecomputeMode::kSelective},
      {ShardMode::kReplicate, RecomputeMode::kFull}, {ShardMode::kHybrid, RecomputeMode::kNone}};
  return all;
}

void train_every_way(RankTest& t, Subject (*make)()) {
  using testing::ShardingStrategy;
  for (const Way& way : ways()) {
    const RankTest::NamedCase named(
        t, shard_mode_names()[static_cast<std::size_t>(way.shard)] + ", recompute " +
               recompute_mode_names()[static_cast<std::size_t>(way.recompute)]);
    const auto strategy =
        way.shard == ShardMode::kHybrid ? ShardingStrategy::kHybridFull : ShardingStrategy::kFull;
    testing::train_parallel_reference(t, make,
                                      {.mesh = testing::mesh_of(strategy, t.world()),
                                       .shard = way.shard,
                                       .precision = precision_named("f64"),
                                       .recompute = way.recompute},
                                      {.ranks = t.size(), .index = t.rank()});
  }
}

// Two tensor-parallel ranks; the other ranks share the batch.
void train_with_tensor_ranks(RankTest& t, Subject (*make)()) {
  const distributed::DeviceMesh mesh({"data", "tensor"}, {t.size() / 2, 2}, t.world().group(),
                                     t.world().device());
  for (const ShardMode shard : {ShardMode::kFull, ShardMode::kGrad, ShardMode::kReplicate}) {
    const RankTest::NamedCase named(t, shard_mode_names()[static_cast<std::size_t>(shard)]);
    testing::train_parallel_reference(t, make,
                                      {.mesh = mesh["data"],
                                       .shard = shard,
                                       .precision = precision_named("f64"),
                                       .recompute = RecomputeMode::kSelective,
                                       .tensor_mesh = mesh["tensor"]},
                                      {.ranks = t.size() / 2, .index = t.rank() / 2});
  }
}

TESSERA_RANK_TEST("gpt over ranks trains as the plain model", "[parallelize]") {
  train_every_way(t, gpt);
}
TESSERA_RANK_TEST("llama over ranks trains as the plain model", "[parallelize]") {
  train_every_way(t, llama);
}
TESSERA_RANK_TEST("the encoder-decoder over ranks trains as the plain model", "[parallelize]") {
  train_every_way(t, encoder_decoder);
}

TESSERA_RANK_TEST_WITH("gpt with tensor parallelism trains as the plain model", "[parallelize]",
                       {.worlds = {2, 4}}) {
  train_with_tensor_ranks(t, gpt);
  train_with_tensor_ranks(t, untied_gpt);
}
TESSERA_RANK_TEST_WITH("llama with tensor parallelism trains as the plain model", "[parallelize]",
                       {.worlds = {2, 4}}) {
  train_with_tensor_ranks(t, llama);
}
TESSERA_RANK_TEST_WITH("the encoder-decoder with tensor parallelism trains as the plain model",
                       "[parallelize]", {.worlds = {2, 4}}) {
  train_with_tensor_ranks(t, encoder_decoder);
  train_with_tensor_ranks(t, untied_encoder_decoder);
}

// Every rank of the axis has a part of each layer's parameters.
TESSERA_RANK_TEST_WITH("tensor parallelism divides heads, widths and vocabulary", "[parallelize]",
                       {.worlds = {2}}) {
  const distributed::DeviceMesh mesh({"data", "tensor"}, {1, 2}, t.world().group(),
                                     t.world().device());
  Llama model({.vocab_size = 13, .ffn_dim = 9});
  parallelize(model, {.mesh = mesh["data"], .tensor_mesh = mesh["tensor"]});
  const auto rows = [&](const char* name) { return model.get_parameter(name).shape()[0]; };
  const bool is_first = t.rank() == 0;
  t.check(rows("token_embedding.weight") == (is_first ? 7 : 6), "rows of the table");
  t.check(rows("head.weight") == (is_first ? 7 : 6), "rows of the head");
  t.check(rows("blocks.1.attention.in_proj_weight") == 16, "rows of q, k and v");
  t.check(rows("blocks.1.feed_forward.gate.weight") == (is_first ? 5 : 4), "rows of gate");
  t.check(rows("blocks.1.feed_forward.up.weight") == (is_first ? 5 : 4), "rows of up");
  t.check(model.get_parameter("blocks.1.feed_forward.down.weight").shape()[1] == (is_first ? 5 : 4),
          "columns of down");
}

template <class Model>
void check_logits_in_parts(RankTest& t, const typename Model::Options& options) {
  const distributed::DeviceMesh mesh({"data", "tensor"}, {1, t.size()}, t.world().group(),
                                     t.world().device());
  const ParallelizeOptions parts{.mesh = mesh["data"],
                                 .precision = precision_named("f64"),
                                 .tensor_mesh = mesh["tensor"],
                                 .loss_parallel = true};
  Model plain(options), parallel(options);
  parallelize(parallel, parts);
  for (nn::Module* module : std::initializer_list<nn::Module*>{&plain, &parallel})
    nn::initialize(*module, {.seed = 2, .device = t.world().device()});
  plain.eval();
  parallel.eval();
  const LanguageModel language = language_model(parallel, parts), whole = language_model(plain);
  const Tensor tokens = samples(0, 3).tensor(), targets = samples(3, 6).tensor();
  const Variable expected = whole.forward(tokens, {}).logits;
  const Variable logits = language.forward(tokens, {}).logits;
  const distributed::Chunk mine = distributed::chunk_of(kVocab, t.size(), t.rank());
  constexpr testing::Tolerance kClose{1e-10, 1e-12};
  t.check_close(logits.tensor(), contiguous(expected.tensor().narrow(2, mine.begin, mine.rows())),
                kClose, "this rank's logits");
  t.check_close(all_logits(language, logits).tensor(), expected.tensor(), kClose, "all logits");
  t.check_close(token_loss(language, logits, targets).tensor(),
                token_loss(whole, expected, targets).tensor(), kClose, "loss");
  const std::vector<std::int32_t> prompt = {3, 1, 4};
  t.check(generate(language, prompt, {.max_tokens = 9, .seed = 6}) ==
              generate(whole, prompt, {.max_tokens = 9, .seed = 6}),
          "the text");
  t.check_throws<InvalidArgument>("give the options to language_model() too",
                                  [&] { token_loss(language_model(parallel), logits, targets); });
  t.check_throws<InvalidArgument>("[models.all_logits]", [&] { all_logits(whole, logits); });
}

TESSERA_RANK_TEST_WITH("with loss parallelism each rank has its part of the logits",
                       "[parallelize]", {.worlds = {2, 3}}) {
  check_logits_in_parts<Gpt>(t, {.layers = 2,
                                 .vocab_size = kVocab,
                                 .max_seq_len = kLength,
                                 .dim = 12,
                                 .heads = 6,
                                 .dtype = DType::kF64});
  check_logits_in_parts<Llama>(t, {.layers = 1,
                                   .vocab_size = kVocab,
                                   .max_seq_len = kLength,
                                   .dim = 12,
                                   .heads = 6,
                                   .kv_heads = 6,
                                   .ffn_dim = 9,
                                   .dtype = DType::kF64});
}

// Its head is whole.
TESSERA_RANK_TEST_WITH("loss parallelism changes nothing for the small transformer",
                       "[parallelize]", {.worlds = {2}}) {
  const distributed::DeviceMesh mesh({"data", "tensor"}, {1, 2}, t.world().group(),
                                     t.world().device());
  const ParallelizeOptions options{
      .mesh = mesh["data"], .tensor_mesh = mesh["tensor"], .loss_parallel = true};
  Transformer model(
      {.layers = 1, .vocab_size = kVocab, .max_seq_len = kLength, .dim = 8, .heads = 2});
  parallelize(model, options);
  nn::initialize(model, {.seed = 2, .device = t.world().device()});
  const LanguageModel language = language_model(model, options);
  t.check(language.vocabulary_mesh == nullptr, "no mesh");
  t.check(language.forward(samples(0, 2).tensor(), {}).logits.dim(-1) == kVocab, "all logits");
}

TESSERA_RANK_TEST_WITH("key-value heads that the ranks do not divide are refused", "[parallelize]",
                       {.worlds = {2}}) {
  const distributed::DeviceMesh mesh({"data", "tensor"}, {1, 2}, t.world().group(),
                                     t.world().device());
  Llama model({.kv_heads = 1});
  t.check_throws<InvalidArgument>("key-value heads", [&] {
    parallelize(model, {.mesh = mesh["data"], .tensor_mesh = mesh["tensor"]});
  });
}

}  // namespace
}  // namespace tessera::models
