// A whole training run as one file: what is loaded goes on bit for bit as if it had not stopped.
#include <catch2/catch.hpp>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/optim/adam.h"
#include "tessera/nn/optim/schedule.h"
#include "tessera/nn/state/module_state.h"
#include "tessera/nn/state/state_file.h"
#include "tessera/nn/training/grad_scaler.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/random.h"
#include "tessera/tests/nn/module_state_support.h"
#include "tessera/tests/tensor/io/safetensors_support.h"

namespace tessera {
namespace {

using namespace testing;
using nn::StateDict;

// A tied weight, a bias, a buffer that each forward changes, and one that is computed.
class Mlp final : public nn::Layer<Mlp> {
 public:
  Mlp()
      : up_({.in = 5, .out = 5}),
        down_({.in = 5, .out = 5, .bias = false}),
        calls_({.shape = {}, .dtype = DType::kI64, .init = nn::init::zeros()}),
        scales_({.shape = {5}, .init = nn::init::uniform(0.5, 1.5), .persistent = false}) {
    nn::tie(up_.weight(), down_.weight());
    register_module("up", up_);
    register_module("down", down_);
    register_buffer("calls", calls_);
    register_buffer("scales", scales_);
  }
  Variable forward(const Variable& x) {
    add_(calls_.tensor(), 1);
    return down_(gelu(up_(x * Variable(scales_.tensor()))));
  }

 private:
  nn::Linear up_, down_;
  nn::Buffer calls_, scales_;
};

struct Run {
  Mlp model;
  nn::optim::AdamW optimizer{model.parameters(), {.lr = 0.05, .weight_decay = 0.1}};
  nn::optim::LrScheduler scheduler{
      optimizer, nn::optim::warm_up_cosine({.warm_up = 3, .steps = 10, .to = 0.1})};
  nn::GradScaler scaler{{.init_scale = 1024, .growth_interval = 3}};
  std::int64_t step = 0;

  // Returns the loss.
  float train() {
    const Tensor x = Tensor::empty({3, 5});
    random::fill_normal(x, random::named_key(static_cast<std::uint64_t>(step), "x"),
                        random::whole(x.shape()), 0, 1);
    const Variable loss = mean(square(model(Variable(x)) - 1));
    backward(scaler.scale(loss));
    scaler.step(optimizer);
    scaler.update();
    optimizer.zero_grad();
    scheduler.step();
    ++step;
    return loss.tensor().item<float>();
  }

  StateDict state() {
    StateDict out;
    out.add("model.", nn::state_dict(model));
    out.add("optimizer.", optimizer.state_dict());
    out.add("scheduler.", scheduler.state_dict());
    out.add("scaler.", scaler.state_dict());
    out.set("step", step);
    return out;
  }
  void load(const StateDict& saved) {
    nn::load_state_dict(model, saved.part("model."));
    optimizer.load_state_dict(saved.part("optimizer."));
    scheduler.load_state_dict(saved.part("scheduler."));
    scaler.load_state_dict(saved.part("scaler."));
    step = saved.integer("step");
  }
};

void check_same(const StateDict& a, const StateDict& b) {
  CHECK(names(a) == names(b));
  for (const auto& [name, value] : a) {
    INFO(name);
    const nn::StateValue* other = b.find(name);
    REQUIRE(other != nullptr);
    REQUIRE(value.index() == other->index());
    if (const Tensor* tensor = std::get_if<Tensor>(&value)) {
      CHECK(same(*tensor, std::get<Tensor>(*other)));
    } else {
      CHECK(nn::state_value_kind(value) == std::string(nn::state_value_kind(*other)));
      if (const auto* number = std::get_if<double>(&value)) {
        CHECK(*number == std::get<double>(*other));
      } else if (const auto* whole = std::get_if<std::int64_t>(&value)) {
        CHECK(*whole == std::get<std::int64_t>(*other));
      } else if (const auto* text = std::get_if<std::string>(&value)) {
        CHECK(*text == std::get<std::string>(*other));
      } else {
        CHECK(std::get<bool>(value) == std::get<bool>(*other));
      }
    }
  }
}

TEST_CASE("training state: a run that was saved goes on as if it had not stopped") {
  const std::string path = temporary_path("training_state", "run.safetensors");
  Run run;
  nn::initialize(run.model, {.seed = 1});
  for (int i = 0; i < 5; ++i) run.train();
  nn::save_state(path, run.state());

  Run resumed;  // its model is never initialised
  resumed.load(nn::load_state(path));
  CHECK(resumed.step == 5);
  check_same(resumed.state(), run.state());
  for (int i = 0; i < 5; ++i) CHECK(resumed.train() == run.train());
  check_same(resumed.state(), run.state());
  CHECK(resumed.state().tensor("model.calls").item<std::int64_t>() == 10);
}

}  // namespace
}  // namespace tessera
