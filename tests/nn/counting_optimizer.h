#pragma once

// An optimizer that only counts.

#include <string>
#include <vector>

#include "tessera/nn/optim/group_optimizer.h"

namespace tessera::testing {

struct CountingOptions {
  double lr = 0;
};

class CountingOptimizer final : public nn::optim::GroupOptimizer<CountingOptions> {
 public:
  explicit CountingOptimizer(const std::vector<nn::Parameter>& parameters) {
    add_groups({{.parameters = parameters, .options = {}}});
  }
  std::string type_name() const override { return "Counting"; }

  int updates = 0;

 private:
  void update(const std::vector<nn::Parameter>&) override { ++updates; }
  void check_options(const CountingOptions&) const override {}
  nn::optim::OptionList list_options(CountingOptions& options) const override {
    return {{"lr", &options.lr}};
  }
  std::vector<std::string> state_names(const CountingOptions&) const override { return {}; }
};

}  // namespace tessera::testing
