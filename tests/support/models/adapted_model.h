// Makes a TestModel of any other model: functions give its input, its call and its loss.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "tessera/autograd/ops/ops.h"
#include "tessera/tests/support/models/test_model.h"

namespace tessera::testing {

template <class M>
struct AdaptedModelOptions {
  using Input = std::vector<Variable>;
  typename M::Options model{};
  std::function<Input(Device device, int rank)> input{};                       ///< required
  std::function<Variable(M& model, const Input& input)> call{};                ///< required
  std::function<Variable(const Input& input, const Variable& output)> loss{};  ///< unset: the sum
                                                                               ///< of the output
  std::function<std::vector<nn::Module*>(M& model)> groups{};                  ///< unset: no groups
};

template <class M>
class AdaptedModel final : public TestModel {
 public:
  using Options = AdaptedModelOptions<M>;
  explicit AdaptedModel(Options options) : options_(std::move(options)), model_(options_.model) {}

  nn::Module& root() override { return model_; }
  std::vector<Variable> get_input(Device device, int rank) const override {
    return options_.input(device, rank);
  }
  Variable call(const std::vector<Variable>& input) override {
    return options_.call(model_, input);
  }
  Variable get_loss(const std::vector<Variable>& input, const Variable& output) override {
    return options_.loss ? options_.loss(input, output) : sum(output);
  }
  std::vector<nn::Module*> groups() override {
    return options_.groups ? options_.groups(model_) : std::vector<nn::Module*>();
  }
  M& model() { return model_; }

 private:
  Options options_;
  M model_;
};

}  // namespace tessera::testing
