// Trains a model as PyTorch trained its own, from equal weights on equal batches, and compares
// values, gradients, losses and the state after 20 steps with PyTorch's f64: f64 within 1e-9, f32
// within 1e-4, relative to max(1, |x|). Running statistics are part of the state.
//
//     TEST_CASE("Linear") {
//       check_training("linear", "Linear", on_x<nn::Linear>({.in = 5, .out = 3}));
//     }
//
// Prints a row of the parity table for each case: file, case, worst deviation in f64 and in f32.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "tessera/autograd/variable.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/nn/module.h"
#include "tessera/tests/support/training_case.h"

namespace tessera::testing {

// The inputs of a step by name; whole numbers and masks are variables too. Throws
// std::out_of_range.
class TrainingBatch {
 public:
  explicit TrainingBatch(std::map<std::string, Variable> inputs) : inputs_(std::move(inputs)) {}
  const Variable& operator[](const std::string& name) const { return inputs_.at(name); }
  const Tensor& tensor(const std::string& name) const { return inputs_.at(name).tensor(); }

 private:
  std::map<std::string, Variable> inputs_;
};

struct StepResult {
  Variable output;
  Variable loss;
};

// A model that is not initialised yet. Its parameters and persistent buffers have PyTorch's names.
struct TrainedModel {
  std::shared_ptr<nn::Module> module;
  std::function<StepResult(const TrainingBatch&)> step;
  std::function<void()> update = {};  // after each backward; empty: SGD with the case's options
};
using MakeModel = std::function<TrainedModel()>;  // called for each dtype

// The worst deviation, infinite if names or shapes differ, and the first differences above the
// tolerance.
struct TrainingDifference {
  double worst = 0;
  bool ok = true;
  std::string message = {};
};
// Compares one dtype. `name` is a case of tests/nn/reference/<file>.json.
TrainingDifference compare_training(const std::string& file, const std::string& name,
                                    const MakeModel& make, DType dtype);

// Checks the case `name` of tests/nn/reference/<file>.json. `how` distinguishes several ways to
// compute it in the table.
void check_training(const std::string& file, const std::string& name, const MakeModel& make,
                    const std::string& how = "");

// The mean of the squared differences from the input "target", and `output` itself.
StepResult squared_error(const Variable& output, const TrainingBatch& batch);

// The model of a module and a step function.
template <class Module, class Step>
TrainedModel trained(std::shared_ptr<Module> module, Step step) {
  Module& model = *module;
  return {std::move(module),
          [&model, step](const TrainingBatch& batch) -> StepResult { return step(model, batch); }};
}

// A layer applied to "x", with squared_error.
template <class Layer>
TrainedModel trained_on_x(std::shared_ptr<Layer> layer) {
  return trained(std::move(layer), [](Layer& model, const TrainingBatch& batch) {
    return squared_error(model(batch["x"]), batch);
  });
}
template <class Layer>
MakeModel on_x(const typename Layer::Options& options) {
  return [options] { return trained_on_x(std::make_shared<Layer>(options)); };
}
// build(nn::Sequential&) adds the layers.
template <class Build>
MakeModel sequence_on_x(Build build) {
  return [build] {
    const auto net = std::make_shared<nn::Sequential>();
    build(*net);
    return trained_on_x(net);
  };
}

}  // namespace tessera::testing
