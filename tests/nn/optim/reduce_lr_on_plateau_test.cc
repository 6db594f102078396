// ReduceLROnPlateau against PyTorch's, metric by metric, and what it refuses.
#include "tessera/nn/optim/reduce_lr_on_plateau.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/nn/optim/sgd.h"
#include "tessera/tests/nn/optim/support.h"

namespace tessera {
namespace {

using nn::StateDict;
using namespace nn::optim;
using namespace testing;

using Rates = std::vector<double>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

const std::vector<double> kLosses = {
    5,     4,       4.03125, 3.9921875, 3.96875, kNan,      3.9921875, 3,    3.5,    3.25,
    3.125, 3,       3.0625,  kInfinity, 2.96875, 2.9921875, 2,         2.5,  2.5,    2.5,
    2.5,   1.96875, 6,       7,         7.03125, 7.5,       0.5,       0.75, 0.53125};
const std::vector<double> kAccuracies = {
    kNan,  0.125,   0.25,     0.265625,  0.25,  0.2734375, 0.375,    0.375,   0.375,
    0.375, 0.40625, 0.5,      0.46875,   kNan,  0.453125,  0.515625, 0.53125, 0.546875,
    0.625, 0.625,   0.640625, 0.6328125, 0.625, 0.625,     0.65625,  0.75,    0.5};

// Two groups with the rates that PyTorch's run had.
struct Run {
  explicit Run(const ReduceLROnPlateauOptions& options) : scheduler(optimizer, options) {}
  Run(const Run&) = delete;

  nn::Parameter a = make({1}, 1), b = make({1}, 2);
  SGD optimizer{
      {{.parameters = {a}, .options = {.lr = 1}}, {.parameters = {b}, .options = {.lr = 0.375}}}};
  ReduceLROnPlateau scheduler;
};

struct Change {
  std::size_t metric;  // counted from 0
  Rates rates;         // after it
};

// After every third metric a new run goes on from the saved state.
void check(const ReduceLROnPlateauOptions& options, const std::vector<double>& metrics,
           const std::vector<Change>& changes) {
  auto run = std::make_unique<Run>(options);
  Rates expected = {1, 0.375};
  auto next = changes.begin();
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    INFO("metric " << i);
    const bool changed = next != changes.end() && next->metric == i;
    if (changed) expected = (next++)->rates;
    CHECK(run->scheduler.step(metrics[i]) == changed);
    CHECK(run->scheduler.last_lr() == expected);
    CHECK(run->scheduler.steps() == static_cast<std::int64_t>(i) + 1);
    if (i % 3 != 0) continue;
    auto resumed = std::make_unique<Run>(options);
    resumed->optimizer.load_state_dict(run->optimizer.state_dict());
    resumed->scheduler.load_state_dict(run->scheduler.state_dict());
    run = std::move(resumed);
  }
  CHECK(next == changes.end());
}

// The changes are what PyTorch 2.15 computes.
TEST_CASE("ReduceLROnPlateau lowers rates where PyTorch's does") {
  check({.factor = 0.5, .patience = 2, .threshold = 0.01, .cooldown = 2, .min_lrs = {0.01, 0.15}},
        kLosses,
        {{4, {0.5, 0.1875}}, {10, {0.25, 0.15}}, {19, {0.125, 0.15}}, {24, {0.0625, 0.15}}});
  check({.factor = 0.3,
         .patience = 1,
         .threshold = 0.03125,
         .threshold_mode = ThresholdMode::kAbs,
         .min_lr = 0.02,
         .eps = 0.01},
        kLosses,
        {{3, {0.3, 0.11249999999999999}}, {5, {0.09, 0.033749999999999995}}, {9, {0.027, 0.02}}});
  check({.patience = 3}, kLosses,
        {{11, {0.1, 0.037500000000000006}},
         {20, {0.010000000000000002, 0.0037500000000000007}},
         {25, {0.0010000000000000002, 0.0003750000000000001}}});
  check({}, kLosses, {});
}

TEST_CASE("ReduceLROnPlateau of metrics that shall grow") {
  check({.mode = PlateauMode::kMax, .patience = 2, .threshold = 0.1}, kAccuracies,
        {{5, {0.1, 0.037500000000000006}},
         {9, {0.010000000000000002, 0.0037500000000000007}},
         {14, {0.0010000000000000002, 0.0003750000000000001}},
         {17, {0.00010000000000000003, 3.750000000000002e-05}},
         {21, {1.0000000000000004e-05, 3.750000000000002e-06}},
         {24, {1.0000000000000004e-06, 3.750000000000002e-07}}});
  check({.mode = PlateauMode::kMax,
         .factor = 0.7,
         .patience = 0,
         .threshold = 0,
         .threshold_mode = ThresholdMode::kAbs,
         .cooldown = 1},
        kAccuracies,
        {{0, {0.7, 0.26249999999999996}},
         {4, {0.48999999999999994, 0.18374999999999997}},
         {7, {0.3429999999999999, 0.12862499999999996}},
         {9, {0.24009999999999992, 0.09003749999999996}},
         {12, {0.16806999999999994, 0.06302624999999998}},
         {14, {0.11764899999999995, 0.04411837499999998}},
         {19, {0.08235429999999996, 0.030882862499999983}},
         {21, {0.05764800999999997, 0.021618003749999986}},
         {23, {0.04035360699999998, 0.01513260262499999}},
         {26, {0.028247524899999984, 0.010592821837499992}}});
}

TEST_CASE("what a ReduceLROnPlateau remembers") {
  Run run({.factor = 0, .patience = 1, .cooldown = 2, .min_lrs = {0.5, 0}});
  const ReduceLROnPlateau& now = run.scheduler;
  CHECK(now.best() == kInfinity);
  CHECK(Run({.mode = PlateauMode::kMax}).scheduler.best() == -kInfinity);
  run.scheduler.step(3);
  run.scheduler.step(kNan);
  CHECK(now.best() == 3);
  CHECK(now.num_bad_epochs() == 1);
  CHECK(!now.in_cooldown());
  CHECK(run.scheduler.step(3));
  CHECK(now.last_lr() == Rates{0.5, 0});
  CHECK(now.num_bad_epochs() == 0);
  CHECK(now.in_cooldown());
  CHECK(now.cooldown_counter() == 2);
  run.scheduler.step(4);
  CHECK(now.cooldown_counter() == 1);
  CHECK(now.num_bad_epochs() == 0);
  run.scheduler.step(2);
  CHECK(now.best() == 2);
  run.scheduler.step(4);
  CHECK(now.num_bad_epochs() == 1);
  run.optimizer.set_lr(0, 2);
  CHECK(now.last_lr() == Rates{2, 0});
  CHECK(run.scheduler.step(4));  // of the rate that the optimizer has
  CHECK(now.last_lr() == Rates{0.5, 0});
  for (int i = 0; i < 9; ++i) CHECK(!run.scheduler.step(4));
}

TEST_CASE("a ReduceLROnPlateau of groups that are added later") {
  const nn::Parameter c = make({1}, 3);
  Run one({.factor = 0.5, .patience = 0, .min_lr = 0.25});
  one.optimizer.add_group({.parameters = {c}, .options = {.lr = 8}});
  one.scheduler.step(1);
  CHECK(one.scheduler.step(1));
  CHECK(one.scheduler.last_lr() == Rates{0.5, 0.25, 4});

  Run each({.factor = 0.5, .patience = 0, .min_lrs = {0.25, 0.125}});
  each.scheduler.step(1);
  each.optimizer.add_group({.parameters = {c}, .options = {.lr = 8}});
  CHECK(thrown<InvalidArgument>([&] { each.scheduler.step(2); }) ==
        "[nn.optim.ReduceLROnPlateau] 2 min_lrs for 3 groups; give one for each, or min_lr for "
        "all");
  CHECK(each.scheduler.steps() == 1);
  CHECK(each.scheduler.num_bad_epochs() == 0);
  CHECK(each.scheduler.last_lr() == Rates{1, 0.375, 8});
}

TEST_CASE("ReduceLROnPlateau refuses options outside their ranges") {
  const auto refused = [](const ReduceLROnPlateauOptions& options) {
    return thrown<InvalidArgument>([&] { Run run(options); });
  };
  const std::string where = "[nn.optim.ReduceLROnPlateau] ";
  CHECK(refused({.factor = 1}) == where + "factor is 1; it lies in [0, 1)");
  CHECK(refused({.factor = -0.5}) == where + "factor is -0.5; it lies in [0, 1)");
  CHECK(refused({.factor = kNan}) == where + "factor is nan; it lies in [0, 1)");
  CHECK(refused({.patience = -1}) == where + "patience is -1; it is at least 0");
  CHECK(refused({.threshold = -0.5}) == where + "threshold is -0.5; it is at least 0");
  CHECK(refused({.threshold = 1}) == where + "threshold is 1; of kMin and kRel it is below 1");
  CHECK(refused({.mode = PlateauMode::kMax, .threshold = 1}) == "nothing was thrown");
  CHECK(refused({.threshold = 1, .threshold_mode = ThresholdMode::kAbs}) == "nothing was thrown");
  CHECK(refused({.cooldown = -2}) == where + "cooldown is -2; it is at least 0");
  CHECK(refused({.min_lr = -0.5}) == where + "min_lr is -0.5; it is at least 0");
  CHECK(refused({.min_lrs = {0, -0.5}}) == where + "min_lrs are 0, -0.5; they are at least 0");
  CHECK(refused({.min_lrs = {0}}) ==
        where + "1 min_lrs for 2 groups; give one for each, or min_lr for all");
  CHECK(refused({.eps = -0.5}) == where + "eps is -0.5; it is at least 0");
}

TEST_CASE("ReduceLROnPlateau lists what is wrong with a saved state") {
  Run run({});
  run.scheduler.step(3);
  run.scheduler.step(4);
  const StateDict saved = run.scheduler.state_dict();
  CHECK(saved.size() == 4);
  CHECK(saved.integer("step") == 2);
  CHECK(saved.number("best") == 3);
  CHECK(saved.integer("num_bad_epochs") == 1);
  CHECK(saved.integer("cooldown_counter") == 0);

  const auto refused = [&](const StateDict& dict) {
    return thrown<InvalidArgument>([&] { run.scheduler.load_state_dict(dict); });
  };
  const std::string misfit =
      "[nn.optim.load_state_dict] the saved state does not fit this ReduceLROnPlateau: ";
  CHECK(refused({}) == misfit +
                           "step is missing; best is missing; num_bad_epochs is missing; "
                           "cooldown_counter is missing");
  StateDict wrong;
  wrong.set("step", 0.5);
  wrong.set("best", "3");
  wrong.set("num_bad_epochs", std::int64_t{-1});
  wrong.set("cooldown_counter", std::int64_t{7});
  wrong.set("lr", 0.5);
  CHECK(refused(wrong) == misfit +
                              "step is a number, not an integer; best is a text, not a number; "
                              "num_bad_epochs is -1; it is at least 0; \"lr\" is unknown");
  StateDict unordered = saved;
  unordered.set("best", kNan);
  CHECK(refused(unordered) == misfit + "best is NaN, which no metric is better than");
  CHECK(run.scheduler.steps() == 2);
  CHECK(run.scheduler.best() == 3);
  CHECK(run.scheduler.cooldown_counter() == 0);
}

}  // namespace
}  // namespace tessera
