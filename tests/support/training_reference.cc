#include "tessera/tests/support/training_reference.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <limits>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/grad_mode.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/init.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::testing {
namespace {

constexpr std::size_t kLinesToTell = 12;

// Collects |got - expected| / max(1, |expected|).
class Comparison {
 public:
  explicit Comparison(double tolerance) : tolerance_(tolerance) {}

  void compare(const std::string& what, const std::vector<double>& got,
               const std::vector<double>& expected) {
    if (got.size() != expected.size()) {
      fail(what + " has " + std::to_string(got.size()) + " numbers, PyTorch's has " +
           std::to_string(expected.size()));
      return;
    }
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double off = std::abs(got[i] - expected[i]) / std::max(1.0, std::abs(expected[i]));
      if (off <= tolerance_) {
        worst_ = std::max(worst_, off);
        continue;
      }
      char line[160];
      std::snprintf(line, sizeof line, " [%zu] is %.12g, PyTorch's %.12g", i, got[i], expected[i]);
      fail(what + line);
      if (!std::isnan(off)) worst_ = std::max(worst_ == kFailed ? 0.0 : worst_, off);
    }
  }
  void compare(const std::string& what, const Tensor& got, const RecordedTensor& expected) {
    if (got.shape() != expected.shape) {
      fail(what + " has shape " + got.shape().str() + ", PyTorch's " + expected.shape.str());
      return;
    }
    compare(what, digest(got), expected.numbers);
  }
  void fail(const std::string& line) {
    if (failures_++ < kLinesToTell) text_ += line + "\n";
    if (worst_ <= tolerance_) worst_ = kFailed;
  }

  TrainingDifference result() const {
    return {worst_, failures_ == 0, text_ + std::to_string(failures_) + " differences"};
  }
  bool passed() const { return failures_ == 0; }

 private:
  static constexpr double kFailed = std::numeric_limits<double>::infinity();
  double tolerance_;
  double worst_ = 0;
  std::size_t failures_ = 0;
  std::string text_;
};

// A model in one dtype, trained as its case specifies.
class Run {
 public:
  Run(const TrainingCase& reference, const MakeModel& make, DType dtype)
      : reference_(reference),
        dtype_(dtype),
        model_(make()),
        comparison_(dtype == DType::kF64 ? 1e-9 : 1e-4) {
    model_.module->to(dtype);
    nn::initialize(*model_.module);
    for (const nn::NamedParameter& named : model_.module->named_parameters()) {
      parameters_.emplace(named.name, named.parameter);
    }
    for (const nn::NamedBuffer& named : model_.module->named_buffers()) {
      if (named.buffer.is_persistent()) buffers_.emplace(named.name, named.buffer);
    }
  }

  TrainingDifference run() {
    if (!set_state()) return comparison_.result();
    use_update();
    for (int step = 0; step < kTrainingSteps; ++step) train(step);
    for (const RecordedState& state : reference_.state) {
      comparison_.compare("in the end " + state.formula.name, digest(tensor_of(state)),
                          state.final);
    }
    model_.module->eval();
    const NoGradGuard no_grad;
    const Variable output = model_.step(batch(kTrainingSteps)).output;
    comparison_.compare("evaluated output", output.tensor(), reference_.evaluated);
    return comparison_.result();
  }

 private:
  // Returns false if names or shapes differ from PyTorch's.
  bool set_state() {
    for (const RecordedState& state : reference_.state) {
      const std::string& name = state.formula.name;
      if (parameters_.count(name) + buffers_.count(name) == 0) {
        comparison_.fail("the model has no " + name);
        continue;
      }
      const Tensor tensor = tensor_of(state);
      if (tensor.shape() != state.formula.shape) {
        comparison_.fail(name + " has shape " + tensor.shape().str() + ", PyTorch's " +
                         state.formula.shape.str());
        continue;
      }
      copy_(tensor, cast(state.formula.make(state.seed, DType::kF64), tensor.dtype()));
    }
    if (parameters_.size() + buffers_.size() != reference_.state.size()) {
      comparison_.fail("the model has " + std::to_string(parameters_.size()) + " parameters and " +
                       std::to_string(buffers_.size()) + " buffers, PyTorch's " +
                       std::to_string(reference_.state.size()) + " together");
    }
    return comparison_.passed();
  }

  Tensor tensor_of(const RecordedState& state) const {
    const auto parameter = parameters_.find(state.formula.name);
    return parameter != parameters_.end() ? parameter->second.local().tensor()
                                          : buffers_.at(state.formula.name).tensor();
  }

  void use_update() {
    if (model_.update || reference_.sgd.empty()) return;
    const std::map<std::string, double>& options = reference_.sgd;
    const auto sgd = std::make_shared<nn::optim::SGD>(
        model_.module->parameters(),
        nn::optim::SgdOptions{.lr = options.at("lr"),
                              .momentum = options.at("momentum"),
                              .weight_decay = options.at("weight_decay")});
    model_.update = [sgd] { sgd->step(); };
  }

  TrainingBatch batch(int step) const {
    std::map<std::string, Tensor> tensors = reference_.batch(step, dtype_);
    std::map<std::string, Variable> inputs;
    for (const RecordedState& input : reference_.inputs) {
      const std::string& name = input.formula.name;
      inputs.emplace(name, Variable(tensors.at(name), input.gradient.has_value()));
    }
    return TrainingBatch(std::move(inputs));
  }

  void train(int step) {
    for (auto& [name, parameter] : parameters_) parameter.zero_grad();
    const TrainingBatch inputs = batch(step);
    const StepResult result = model_.step(inputs);
    backward(result.loss);
    if (step == 0) compare_first(inputs, result.output);
    comparison_.compare("loss of step " + std::to_string(step), digest(result.loss.tensor()),
                        {reference_.losses.at(static_cast<std::size_t>(step))});
    model_.update();
  }

  void compare_first(const TrainingBatch& inputs, const Variable& output) {
    comparison_.compare("output", output.tensor(), reference_.output);
    for (const RecordedState& input : reference_.inputs) {
      if (input.gradient) compare_gradient(input, inputs[input.formula.name].grad());
    }
    for (const RecordedState& state : reference_.state) {
      const auto parameter = parameters_.find(state.formula.name);
      if (parameter != parameters_.end()) compare_gradient(state, parameter->second.grad());
    }
  }

  void compare_gradient(const RecordedState& state, const Tensor& gradient) {
    const std::string what = "gradient of " + state.formula.name;
    if (gradient.defined() != state.gradient.has_value()) {
      comparison_.fail(gradient.defined() ? what + ": PyTorch has none" : what + " is missing");
    } else if (gradient.defined()) {
      comparison_.compare(what, gradient, {state.formula.shape, *state.gradient});
    }
  }

  const TrainingCase& reference_;
  DType dtype_;
  TrainedModel model_;
  Comparison comparison_;
  std::map<std::string, nn::Parameter> parameters_;
  std::map<std::string, nn::Buffer> buffers_;
};

}  // namespace

StepResult squared_error(const Variable& output, const TrainingBatch& batch) {
  return {output, mean(square(output - batch["target"]))};
}

TrainingDifference compare_training(const std::string& file, const std::string& name,
                                    const MakeModel& make, DType dtype) {
  const TrainingCase reference = load_training_case(file, name);
  return Run(reference, make, dtype).run();
}

void check_training(const std::string& file, const std::string& name, const MakeModel& make,
                    const std::string& how) {
  const TrainingDifference f64 = compare_training(file, name, make, DType::kF64);
  const TrainingDifference f32 = compare_training(file, name, make, DType::kF32);
  const std::string row = how.empty() ? name : name + ", " + how;
  std::printf("parity | %s | %s | %.1e | %.1e\n", file.c_str(), row.c_str(), f64.worst, f32.worst);
  INFO(file << ".json, " << row << "\nf64: " << f64.message << "\nf32: " << f32.message);
  CHECK(f64.ok);
  CHECK(f32.ok);
}

}  // namespace tessera::testing
