// The models of the sharding tests train as PyTorch's do.
#include <catch2/catch.hpp>

#include "tessera/autograd/ops/ops.h"
#include "tessera/models/nets/transformer.h"
#include "tessera/nn/recompute.h"
#include "tessera/tests/support/models/mlp.h"
#include "tessera/tests/support/models/nested.h"
#include "tessera/tests/support/models/small_models.h"
#include "tessera/tests/support/models/transformer_with_shared_params.h"
#include "tessera/tests/support/training_reference.h"

namespace tessera {
namespace {

using testing::MakeModel;
using testing::on_x;
using testing::squared_error;
using testing::StepResult;
using testing::trained;
using testing::TrainingBatch;

void check(const std::string& name, const MakeModel& make) {
  check_training("small_model", name, make);
}

TEST_CASE("parity: perceptrons") {
  check("MLP", on_x<testing::MLP>({.dim = 5}));
  check("MLP, multiplier 3, without bias, with buffer",
        on_x<testing::MLP>({.dim = 5, .multiplier = 3, .bias = false, .with_buffer = true}));
  check("MLPStack", on_x<testing::MLPStack>({.dim = 6}));
  check("MLPStack with norm", on_x<testing::MLPStack>({.dim = 6, .with_seq_parallel = true}));
  check("MLPModule without bias", on_x<testing::MLPModule>({.bias = false}));
  check("MLPStacked", on_x<testing::MLPStacked>({.layers = 2}));
  check("SaveForwardInputsModel", on_x<testing::SaveForwardInputsModel>({}));
}

MakeModel double_linear(bool use_second) {
  return [use_second] {
    const testing::DoubleLinearOptions options{.dim = 5, .use_second = use_second};
    return trained(
        std::make_shared<testing::DoubleLinear>(options),
        [](testing::DoubleLinear& model, const TrainingBatch& batch) {
          const auto [first, second] = model(batch["x"]);
          return squared_error(second.defined() ? cat({first, second}, -1) : first, batch);
        });
  };
}

TEST_CASE("parity: linear layers in layers") {
  check("DoubleLinear", double_linear(true));
  check("DoubleLinear, second unused", double_linear(false));
  check("NestedLinear",
        [] { return testing::trained_on_x(std::make_shared<testing::NestedLinear>(DType::kF32)); });
  check("SkipModel", on_x<testing::SkipModel>({}));
  check("Net", on_x<testing::Net>({}));
  check("NestedWrappedModule", on_x<testing::NestedWrappedModule>({}));
  check("NonUniformReqGradNWM", on_x<testing::NonUniformReqGradNWM>({}));
  check("MixtureOfExperts", on_x<testing::MixtureOfExperts>({}));
}

// The mean over all positions of logits [..., classes].
StepResult mean_cross_entropy(const Variable& logits, const Tensor& classes) {
  const Variable rows = flatten(logits, 0, -2);
  return {logits, cross_entropy(rows, classes.view({classes.numel()}))};
}

MakeModel shared_transformer(bool add_bn) {
  return [add_bn] {
    using Model = testing::TransformerWithSharedParams;
    const auto module =
        std::make_shared<Model>(testing::TransformerWithSharedParamsOptions{.add_bn = add_bn});
    module->get_submodule("transformer").eval();  // no dropout; the batch norm trains
    return trained(module, [](Model& model, const TrainingBatch& batch) {
      return mean_cross_entropy(model(batch["source"], batch["wanted"]), batch.tensor("wanted"));
    });
  };
}

TEST_CASE("parity: TransformerWithSharedParams") {
  const std::string file = "shared_transformer_model";
  check_training(file, "TransformerWithSharedParams", shared_transformer(true));
  check_training(file, "TransformerWithSharedParams without batch norm", shared_transformer(false));
}

MakeModel transformer(models::ModelArgs args) {
  args.dropout = 0;
  return [args] {
    return trained(std::make_shared<models::Transformer>(args),
                   [](models::Transformer& model, const TrainingBatch& batch) {
                     return mean_cross_entropy(model(batch["tokens"]), batch.tensor("next"));
                   });
  };
}

TEST_CASE("parity: the small Transformer") {
  const std::string file = "transformer_model";
  check_training(file, "Transformer", transformer({}));
  check_training(file, "Transformer", transformer({.checkpoint_activations = true}),
                 "blocks recomputed");
  check_training(file, "Transformer, untied", transformer({.weight_tying = false}));
  check_training(file, "Transformer of three layers", transformer({.layers = 3}));
}

}  // namespace
}  // namespace tessera
