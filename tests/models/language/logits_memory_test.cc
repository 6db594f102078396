// Training a language model: the gradient of the logits reuses their memory, for every model and
// precision, so backward needs no second tensor of [tokens, vocabulary].
#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/models/parallelize/precision.h"
#include "tessera/models/training/language_task.h"
#include "tessera/nn/init.h"
#include "tessera/tensor/random_scope.h"
#include "tessera/tests/models/language/sequences.h"
#include "tessera/tests/models/language/tiny_model.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

constexpr std::int64_t kBatch = 8;

void check_logits_memory(RankTest& t, const std::string& name, const std::string& precision) {
  const LetterTokenizer tokenizer;
  const models::data::PackedSequences text(letter_stream(kBatch * kTinyLength + 1, 1), kTinyLength);
  const std::unique_ptr<TinyModel> model = tiny_model(name, {});
  model->parallelize({.mesh = t.world().mesh(), .precision = models::precision_named(precision)});
  nn::initialize(model->module(), {.seed = 3, .device = t.world().device()});
  models::LanguageTask task(t.world(), model->language_model(), text, text, tokenizer,
                            {.batch = kBatch});
  const models::BatchShare share = task.load(1);
  const random::StepScope scope({.seed = 7, .step = 1, .first_sample = share.first_sample});
  const models::LossSum loss = task.loss(0, share.rows);
  bool in_place = false;
  loss.sum.gradient_edge().node->add_post_hook([&](const Gradients& gradients) {
    const char* writer = gradients.front().tensor().last_writer();
    in_place = writer != nullptr && std::string(writer) == "cross_entropy_rows_backward_";
  });
  Variable total = loss.sum;
  if (loss.auxiliary.defined()) total = total + cast(loss.auxiliary, total.dtype());
  backward(total);
  t.check(share.rows == 0 || in_place, "{} in {}: the logits' gradient has memory of its own", name,
          precision);
}

TESSERA_RANK_TEST("the gradient of a language model's logits takes their memory", "[trainer]") {
  for (const std::string& name : tiny_model_names()) {
    for (const char* precision : {"f32", "bf16"}) check_logits_memory(t, name, precision);
  }
}

}  // namespace
}  // namespace tessera::testing
