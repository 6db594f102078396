// Schedules give the learning rates that PyTorch's give, or, for warm-up, stable, decay, the
// formula.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>

#include "tessera/nn/optim/schedule.h"
#include "tessera/tests/support/training_reference.h"

namespace tessera {
namespace {

namespace optim = nn::optim;

TEST_CASE("parity: schedules") {
  using optim::WsdDecay;
  const auto wsd = [](WsdDecay shape) {
    return optim::wsd({.warm_up = 4, .stable = 7, .decay = 6, .to = 0.125, .shape = shape});
  };
  const std::map<std::string, optim::Schedule> schedules{
      {"constant", optim::constant(0.25)},
      {"warm up", optim::warm_up(6)},
      {"linear", optim::linear({.from = 1, .to = 0.125, .steps = 12})},
      {"cosine", optim::cosine({.to = 0.125, .steps = 20})},
      {"cosine, then still", optim::cosine({.to = 0.125, .steps = 11})},
      {"steps", optim::step_decay({.every = 6, .gamma = 0.5})},
      {"warm up, then cosine", optim::warm_up_cosine({.warm_up = 5, .steps = 20})},
      {"product", optim::product({optim::linear({.from = 0.25, .to = 1, .steps = 6}),
                                  optim::step_decay({.every = 5, .gamma = 0.5})})},
      {"warm up, stable, decay: linear", wsd(WsdDecay::kLinear)},
      {"warm up, stable, decay: cosine", wsd(WsdDecay::kCosine)},
      {"warm up, stable, decay: square root", wsd(WsdDecay::kSquareRoot)},
  };
  const std::map<std::string, std::vector<double>> expected = testing::load_schedules();
  CHECK(expected.size() == schedules.size());
  for (const auto& [name, schedule] : schedules) {
    INFO(name);
    const std::vector<double>& rates = expected.at(name);
    double worst = 0;
    for (std::size_t i = 0; i < rates.size(); ++i) {
      worst = std::max(worst, std::abs(schedule(static_cast<std::int64_t>(i)) - rates[i]));
    }
    std::printf("parity | schedule | %s | %.1e | -\n", name.c_str(), worst);
    CHECK(rates.size() == testing::kTrainingSteps);
    CHECK(worst <= 1e-9);
  }
}

}  // namespace
}  // namespace tessera
