// Schedules: their factors, step by step, and the scheduler that hands them to an optimizer.
#include "tessera/nn/optim/schedule.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "tessera/nn/optim/sgd.h"
#include "tessera/tests/nn/optim/support.h"

namespace tessera {
namespace {

using nn::StateDict;
using nn::optim::LrScheduler;
using nn::optim::Schedule;
using nn::optim::SGD;
using namespace nn::optim;
using namespace testing;

std::vector<double> first(int count, const Schedule& schedule) {
  std::vector<double> out;
  for (int step = 0; step < count; ++step) out.push_back(schedule(step));
  return out;
}

using Factors = std::vector<double>;
const double kPi = std::acos(-1.0);

TEST_CASE("schedules made of numbers") {
  CHECK(first(3, nn::optim::constant()) == Factors{1, 1, 1});
  CHECK(first(2, nn::optim::constant(0.5)) == Factors{0.5, 0.5});
  CHECK(first(5, warm_up(4)) == Factors{0.25, 0.5, 0.75, 1, 1});
  CHECK(first(2, warm_up(1)) == Factors{1, 1});
  CHECK(first(2, warm_up(0)) == Factors{1, 1});
  CHECK(first(6, nn::optim::linear({.from = 1, .to = 0, .steps = 4})) ==
        Factors{1, 0.75, 0.5, 0.25, 0, 0});
  CHECK(first(3, nn::optim::linear({.from = 0.5, .to = 1.5, .steps = 2})) == Factors{0.5, 1, 1.5});
  CHECK(first(7, step_decay({.every = 3, .gamma = 0.5})) == Factors{1, 1, 1, 0.5, 0.5, 0.5, 0.25});
}

TEST_CASE("cosine: from 1 to its end, at the start of steps or in their middle") {
  for (int step = 0; step <= 10; ++step) {
    const double x = std::min(step, 8) / 8.0, middle = std::min(step + 0.5, 8.0) / 8.0;
    CHECK(cosine({.to = 0.1, .steps = 8})(step) ==
          Approx(0.1 + 0.9 * (1 + std::cos(kPi * x)) / 2).margin(1e-15));
    CHECK(cosine({.steps = 8, .midpoints = true})(step) ==
          Approx((1 + std::cos(kPi * middle)) / 2).margin(1e-15));
  }
  CHECK(cosine({.steps = 3})(0) == 1);
  CHECK(cosine({.steps = 3})(3) == 0);
}

TEST_CASE("warm_up_cosine rises to 1 and falls to almost 0 within the run") {
  const Schedule schedule = warm_up_cosine({.warm_up = 2, .steps = 10, .midpoints = true});
  CHECK(schedule(0) == 0.5);
  CHECK(schedule(1) == 1);
  CHECK(schedule(2) == Approx(0.5 * (1 + std::cos(kPi / 16))));
  CHECK(schedule(9) == Approx(0.5 * (1 + std::cos(kPi * 15 / 16))));
  for (int step = 2; step < 9; ++step) CHECK(schedule(step) > schedule(step + 1));
  CHECK(schedule(9) > 0);
  CHECK(warm_up_cosine({.warm_up = 0, .steps = 1, .midpoints = true})(0) == Approx(0.5));
  CHECK(warm_up_cosine({.warm_up = 3, .steps = 3})(2) == 1);
  CHECK(warm_up_cosine({.warm_up = 1, .steps = 3, .to = 0.25})(3) == 0.25);
}

TEST_CASE("wsd: up, level, down in each of its shapes") {
  const WsdOptions options{.warm_up = 2, .stable = 2, .decay = 4, .to = 0.5};
  CHECK(first(10, wsd(options)) == Factors{0.5, 1, 1, 1, 1, 0.875, 0.75, 0.625, 0.5, 0.5});
  WsdOptions other = options;
  other.shape = WsdDecay::kSquareRoot;
  CHECK(wsd(other)(5) == Approx(0.5 + 0.5 * (1 - std::sqrt(0.25))));
  other.shape = WsdDecay::kCosine;
  CHECK(wsd(other)(5) == Approx(0.5 + 0.5 * (1 + std::cos(kPi / 4)) / 2));
  CHECK(first(3, wsd({.decay = 2})) == Factors{1, 0.5, 0});
}

TEST_CASE("sequence counts each schedule from where it begins; product multiplies") {
  const Schedule steps = nn::optim::linear({.from = 0, .to = 10, .steps = 10});
  CHECK(first(8, sequence({steps, nn::optim::constant(7), steps}, {3, 5})) ==
        Factors{0, 1, 2, 7, 7, 0, 1, 2});
  CHECK(first(3, sequence({nn::optim::constant(7), steps, nn::optim::constant(8)}, {0, 2})) ==
        Factors{0, 1, 8});
  CHECK(first(2, sequence({steps}, {})) == Factors{0, 1});
  CHECK(first(4, nn::optim::product({steps, step_decay({.every = 2, .gamma = 0.5})})) ==
        Factors{0, 1, 1, 1.5});
}

TEST_CASE("milestones, powers and cycles: at their ends and far beyond") {
  const std::int64_t far = std::int64_t{1} << 62;
  CHECK(first(3, multi_step({})) == Factors{1, 1, 1});
  CHECK(first(3, multi_step({.milestones = {1}, .gamma = 0})) == Factors{1, 0, 0});
  CHECK(multi_step({.milestones = {2, 2, 7}, .gamma = 0.5})(far) == 0.125);
  CHECK(first(4, exponential({.gamma = 0.5})) == Factors{1, 0.5, 0.25, 0.125});
  CHECK(first(3, exponential({.gamma = 2})) == Factors{1, 2, 4});
  CHECK(exponential({.gamma = 0.5})(far) == 0);
  CHECK(first(6, polynomial({.steps = 4, .power = 2, .to = 0.5})) ==
        Factors{1, 0.78125, 0.625, 0.53125, 0.5, 0.5});
  CHECK(polynomial({.steps = 3, .power = 0.5, .to = 0.25})(far) == 0.25);

  const Schedule same = cosine_restarts({.steps = 3}),
                 longer = cosine_restarts({.steps = 3, .multiply = 2});
  const Schedule once = cosine({.steps = 3}), twice = cosine({.steps = 6});
  for (int step = 0; step < 3; ++step) {
    CHECK(same(step) == once(step));
    CHECK(same(3000 + step) == once(step));
    CHECK(longer(step) == once(step));
  }
  for (int step = 0; step < 6; ++step) CHECK(longer(3 + step) == twice(step));
  CHECK(same(far - far % 3) == 1);
  CHECK(longer(9) == 1);
  CHECK(longer(20) < longer(19));
  CHECK(longer(21) == 1);
  CHECK(cosine_restarts({.steps = 3, .multiply = far})(far) == Approx(0.75));
}

TEST_CASE("one_cycle stays at its end, and a rise of one step is the top") {
  const Schedule cycle = one_cycle({.steps = 10, .div_factor = 10, .final_div_factor = 100});
  CHECK(cycle(0) == Approx(0.1));
  CHECK(cycle(2) == 1);
  CHECK(cycle(9) == Approx(0.001));
  CHECK(cycle(10) == cycle(9));
  CHECK(cycle(std::int64_t{1} << 62) == cycle(9));
  const AnnealStrategy straight = AnnealStrategy::kLinear;
  // PyTorch divides by zero here.
  CHECK(first(3, one_cycle({.steps = 10, .pct_start = 0.1})).front() == 1);
  CHECK(one_cycle({.steps = 1, .pct_start = 1})(0) == 1);
  CHECK(first(6, one_cycle({.steps = 5,
                            .pct_start = 0.2,
                            .anneal_strategy = straight,
                            .div_factor = 2,
                            .final_div_factor = 4})) ==
        Factors{1, 0.78125, 0.5625, 0.34375, 0.125, 0.125});
  CHECK(first(8, one_cycle({.steps = 6,
                            .pct_start = 0.5,
                            .anneal_strategy = straight,
                            .div_factor = 2,
                            .final_div_factor = 4,
                            .three_phase = true})) ==
        Factors{0.5, 0.75, 1, 0.75, 0.5, 0.125, 0.125, 0.125});
}

TEST_CASE("schedules refuse numbers that make no sense") {
  const auto refused = [](const std::function<Schedule()>& make) {
    return thrown<InvalidArgument>(make);
  };
  CHECK(refused([] { return warm_up(-1); }) ==
        "[nn.optim.schedule] a warm-up of -1 steps; it takes at least 0");
  CHECK(refused([] { return nn::optim::linear({}); }) ==
        "[nn.optim.schedule] linear over 0 steps; it takes at least 1");
  CHECK(refused([] { return cosine({}); }) ==
        "[nn.optim.schedule] a decay of 0 steps; it takes at least 1");
  CHECK(refused([] { return wsd({}); }) ==
        "[nn.optim.schedule] a decay of 0 steps; it takes at least 1");
  CHECK(refused([] { return wsd({.stable = -1, .decay = 1}); }) ==
        "[nn.optim.schedule] stable for -1 steps; it takes at least 0");
  CHECK(refused([] { return step_decay({}); }) ==
        "[nn.optim.schedule] a decay every 0 steps; it takes at least 1");
  CHECK(refused([] { return warm_up_cosine({}); }) ==
        "[nn.optim.schedule] a run of 0 steps; it takes at least 1");
  CHECK(refused([] { return sequence({warm_up(1)}, {1}); }) ==
        "[nn.optim.schedule] a sequence of 1 schedules with 1 milestones; it has one milestone "
        "fewer than schedules");
  CHECK(refused([] {
          return sequence({warm_up(1), warm_up(1), warm_up(1)}, {3, 2});
        }) ==
        "[nn.optim.schedule] milestones 3, 2 of a sequence; they do not fall, and none is below 0");
  CHECK(refused([] {
          return sequence({warm_up(1), warm_up(1)}, {-1});
        }).starts_with("[nn.optim.schedule] milestones -1 of a sequence"));
  CHECK(refused([] { return nn::optim::product({}); }) ==
        "[nn.optim.schedule] a product of no schedules; it takes at least one");
}

TEST_CASE("the other schedules of PyTorch refuse numbers that make no sense") {
  const double nan = std::nan("");
  const auto refused = [](const std::function<Schedule()>& make) {
    return thrown<InvalidArgument>(make);
  };
  const std::string where = "[nn.optim.schedule] ";
  CHECK(refused([] {
          return multi_step({.milestones = {3, 2}});
        }) == where + "milestones 3, 2 of multi_step; they do not fall, and none is below 0");
  CHECK(refused([] {
          return multi_step({.milestones = {-1, 2}});
        }) == where + "milestones -1, 2 of multi_step; they do not fall, and none is below 0");
  CHECK(refused([] { return multi_step({.gamma = -0.5}); }) ==
        where + "gamma of multi_step is -0.5; it is at least 0");
  CHECK(refused([&] { return multi_step({.gamma = nan}); }) ==
        where + "gamma of multi_step is nan; it is at least 0");
  CHECK(refused([] { return exponential({}); }) ==
        where + "gamma of exponential is 0; it is above 0");
  CHECK(refused([] { return polynomial({}); }) ==
        where + "a decay of 0 steps; it takes at least 1");
  CHECK(refused([] { return polynomial({.steps = 3, .power = 0}); }) ==
        where + "power of polynomial is 0; it is above 0");
  CHECK(refused([] { return cosine_restarts({}); }) ==
        where + "a cycle of 0 steps; it takes at least 1");
  CHECK(refused([] { return cosine_restarts({.steps = 3, .multiply = 0}); }) ==
        where + "multiply of cosine_restarts is 0; it is at least 1");
  CHECK(refused([] { return one_cycle({}); }) == where + "a run of 0 steps; it takes at least 1");
  CHECK(refused([] { return one_cycle({.steps = 3, .pct_start = 1.5}); }) ==
        where + "pct_start of one_cycle is 1.5; it lies in [0, 1]");
  CHECK(refused([] { return one_cycle({.steps = 3, .pct_start = -0.5}); }) ==
        where + "pct_start of one_cycle is -0.5; it lies in [0, 1]");
  CHECK(refused([&] { return one_cycle({.steps = 3, .pct_start = nan}); }) ==
        where + "pct_start of one_cycle is nan; it lies in [0, 1]");
  CHECK(refused([] { return one_cycle({.steps = 3, .pct_start = 0.75, .three_phase = true}); }) ==
        where + "pct_start of one_cycle is 0.75; with three_phase it lies in [0, 0.5]");
  CHECK(refused([] { return one_cycle({.steps = 3, .div_factor = 0}); }) ==
        where + "div_factor of one_cycle is 0; it is above 0");
  CHECK(refused([] { return one_cycle({.steps = 3, .final_div_factor = -1}); }) ==
        where + "final_div_factor of one_cycle is -1; it is above 0");
}

TEST_CASE("a scheduler sets initial lr times the factor, for every group") {
  const nn::Parameter a = make({1}, 1), b = make({1}, 2), c = make({1}, 3);
  SGD optimizer(
      {{.parameters = {a}, .options = {.lr = 2}}, {.parameters = {b}, .options = {.lr = 4}}});
  LrScheduler scheduler(optimizer, warm_up(4));
  CHECK(scheduler.last_lr() == Factors{0.5, 1});
  CHECK(optimizer.lr(1) == 1);
  scheduler.step();
  CHECK(scheduler.last_lr() == Factors{1, 2});
  optimizer.set_lr(9);
  CHECK(scheduler.last_lr() == Factors{9, 9});
  optimizer.add_group({.parameters = {c}, .options = {.lr = 8}});
  scheduler.step();
  CHECK(scheduler.steps() == 2);
  CHECK(scheduler.last_lr() == Factors{1.5, 3, 6});
}

TEST_CASE("a schedule for each group") {
  const nn::Parameter a = make({1}, 1), b = make({1}, 2), c = make({1}, 3);
  SGD optimizer(
      {{.parameters = {a}, .options = {.lr = 2}}, {.parameters = {b}, .options = {.lr = 4}}});
  const std::vector<Schedule> schedules = {nn::optim::constant(), warm_up(2)};
  LrScheduler scheduler(optimizer, schedules);
  CHECK(scheduler.last_lr() == Factors{2, 2});
  optimizer.add_group({.parameters = {c}, .options = {.lr = 8}});
  const std::string misfit =
      "[nn.optim.LrScheduler] 2 schedules for 3 groups; give one for each, or one for all";
  CHECK(thrown<InvalidArgument>([&] { scheduler.step(); }) == misfit);
  StateDict saved;
  saved.set("step", std::int64_t{7});
  CHECK(thrown<InvalidArgument>([&] { scheduler.load_state_dict(saved); }) == misfit);
  CHECK(scheduler.steps() == 0);
  CHECK(scheduler.last_lr() == Factors{2, 2, 8});
}

TEST_CASE("a step that the optimizer refuses is not counted, and changes no group") {
  const nn::Parameter a = make({1}, 1), b = make({1}, 2);
  SGD optimizer(
      {{.parameters = {a}, .options = {.lr = 2}}, {.parameters = {b}, .options = {.lr = 4}}});
  const std::vector<Schedule> schedules = {warm_up(2), [](std::int64_t step) { return -step; }};
  LrScheduler scheduler(optimizer, schedules);
  CHECK(thrown<InvalidArgument>([&] { scheduler.step(); }) ==
        "[nn.optim.LrScheduler] the schedule of group 1 gives -1 at step 1; a factor is at least "
        "0");
  CHECK(scheduler.steps() == 0);
  CHECK(scheduler.last_lr() == Factors{1, 0});
}

TEST_CASE("empty functions are no schedules") {
  const nn::Parameter a = make({1}, 1);
  SGD optimizer({a}, {.lr = 2});
  const std::string empty = "schedule 0 is an empty function";
  CHECK(thrown<InvalidArgument>([&] { LrScheduler(optimizer, Schedule()); }) ==
        "[nn.optim.LrScheduler] " + empty);
  CHECK(thrown<InvalidArgument>([] { product({Schedule()}); }) == "[nn.optim.schedule] " + empty);
  CHECK(thrown<InvalidArgument>([] {
          sequence({nn::optim::constant(), Schedule()}, {1});
        }) == "[nn.optim.schedule] schedule 1 is an empty function");
}

TEST_CASE("a scheduler goes on from its saved step") {
  const nn::Parameter a = make({1}, 1);
  SGD optimizer({a}, {.lr = 2});
  LrScheduler scheduler(optimizer, warm_up(4));
  scheduler.step();
  scheduler.step();
  const StateDict saved = scheduler.state_dict();
  CHECK(saved.integer("step") == 2);
  SGD other({a}, {.lr = 2});
  LrScheduler resumed(other, warm_up(4));
  resumed.load_state_dict(saved);
  CHECK(resumed.steps() == 2);
  CHECK(other.lr() == 1.5);

  const auto refused = [&](const StateDict& dict) {
    return thrown<InvalidArgument>([&] { resumed.load_state_dict(dict); });
  };
  StateDict wrong;
  CHECK(refused(wrong) ==
        "[nn.optim.load_state_dict] the saved state does not fit this LrScheduler: step is "
        "missing");
  wrong.set("step", 0.5);
  wrong.set("lr", 0.5);
  CHECK(refused(wrong) ==
        "[nn.optim.load_state_dict] the saved state does not fit this LrScheduler: step is a "
        "number, not an integer; \"lr\" is unknown");
  StateDict negative;
  negative.set("step", std::int64_t{-1});
  CHECK(refused(negative).ends_with("step is -1; it is at least 0"));
  CHECK(resumed.steps() == 2);
}

}  // namespace
}  // namespace tessera
