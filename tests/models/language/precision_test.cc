// The meaning of the precision names: every tensor of a run, of every language model, has the dtype
// that its precision says. Checked are parameters as stored and as gathered, arguments and results
// of every module, gradients before and after their reduction, the optimizer's state, and buffers.
// The accumulation dtype is checked by values.

#include "tessera/models/parallelize/precision.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/models/parallelize/parallelize_rules.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layer.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tests/models/language/run.h"
#include "tessera/tests/models/language/tiny_model.h"
#include "tessera/tests/support/collective_records.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using models::Precision;
using models::precision_named;
using models::ShardMode;

TEST_CASE("precisions have names", "[precision]") {
  CHECK(models::precision_names() == std::vector<std::string>{"f32", "bf16", "f16", "f64"});
  for (const std::string& name : models::precision_names()) {
    const DType plain = name == "f64" ? DType::kF64 : DType::kF32;
    const DType compute = name == "bf16" ? DType::kBF16 : name == "f16" ? DType::kF16 : plain;
    const Precision wanted{.name = name,
                           .storage = plain,
                           .compute = compute,
                           .reduce = plain,
                           .accumulate = plain,
                           .buffer = plain};
    CHECK(precision_named(name) == wanted);
    CHECK(precision_named(name).needs_loss_scale() == (name == "f16"));
  }
  CHECK(models::describe(precision_named("bf16")) ==
        "storage f32, compute bf16, reduce f32, accumulate f32, buffer f32");
  CHECK_THROWS_WITH(precision_named("fp8"),
                    Catch::Contains("\"fp8\"") && Catch::Contains("f32, bf16, f16, f64"));
  CHECK_THROWS_AS(precision_named(""), InvalidArgument);
}

// ---- the walk over a model ----

// The dtypes with which a model's modules computed; collects the names of those with a wrong dtype.
class Walk {
 public:
  Walk(RankTest& t, nn::Module& model, const Precision& precision) : t_(t), precision_(precision) {
    for (const nn::NamedModule& named : model.named_modules()) {
      if (named.module->is_container()) continue;
      handles_.push_back(named.module->register_forward_pre_hook(
          [this, name = named.name](nn::Module& module, const nn::VisitVariables& arguments) {
            for (const nn::NamedParameter& own : module.own_parameters())
              see("gathered " + own.parameter.name(), own.parameter.value().dtype());
            arguments([&](Variable& x) { see_activation("an argument of " + name, x); });
          }));
      handles_.push_back(named.module->register_forward_hook(
          [this, name = named.name](nn::Module&, const nn::VisitVariables* results) {
            (*results)([&](Variable& x) { see_result(name, x); });
          }));
    }
  }
  ~Walk() {
    for (HookHandle& handle : handles_) handle.remove();
  }
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;

  int seen() const { return seen_; }

 private:
  void see(const std::string& what, DType dtype) {
    ++seen_;
    t_.check(dtype == precision_.compute, "{} is {}", what, dtype_name(dtype));
  }
  void see_activation(const std::string& what, const Variable& x) {
    if (x.defined() && is_floating(x.dtype())) see(what, x.dtype());
  }
  // A router's logits and losses are f32 or wider, because choices and sums depend on small
  // differences of them. Cross entropy computes in f32 inside: the model's logits are as it computes.
  void see_result(const std::string& name, const Variable& x) {
    if (!x.defined()) return;
    const bool is_loss = x.ndim() == 0;
    const bool is_router = name.ends_with("router");
    if (!is_loss && !is_router) return see_activation("a result of " + name, x);
    t_.check(x.dtype() == precision_.accumulate, "{} gives {}", name, dtype_name(x.dtype()));
  }

  RankTest& t_;
  const Precision& precision_;
  std::vector<HookHandle> handles_;
  int seen_ = 0;
};

// Checks floating-point collectives only: ranks with experts also exchange token counts.
void check_collectives(RankTest& t, const std::vector<CollectiveRecord>& records,
                       const std::string& op, DType wanted, bool some) {
  int count = 0;
  for (const CollectiveRecord& record : records) {
    if (record.op != op || !is_floating(record.dtype)) continue;
    ++count;
    t.check(record.dtype == wanted, "{} of {} is in {}", op, record.label,
            dtype_name(record.dtype));
  }
  t.check(!some || count > 0, "there was no {}", op);
}

void check_stored(RankTest& t, nn::Module& model, nn::optim::Optimizer& optimizer,
                  const Precision& precision) {
  for (const nn::NamedParameter& named : model.named_parameters()) {
    const nn::Parameter& parameter = named.parameter;
    t.check(parameter.local().dtype() == precision.storage, "{} is stored in {}", named.name,
            dtype_name(parameter.local().dtype()));
    const Tensor gradient = parameter.grad();
    t.check(gradient.defined() && gradient.dtype() == precision.storage,
            "the gradient of {} is missing or in {}", named.name,
            gradient.defined() ? dtype_name(gradient.dtype()) : "nothing");
  }
  std::size_t moments = 0;
  for (const auto& [name, value] : optimizer.state_dict()) {
    const Tensor* tensor = std::get_if<Tensor>(&value);
    if (tensor == nullptr) continue;
    ++moments;
    t.check(tensor->dtype() == precision.storage, "{} is in {}", name, dtype_name(tensor->dtype()));
  }
  t.check(moments >= 2 * model.parameters().size(), "{} tensors of state", moments);
  for (const nn::NamedBuffer& named : model.named_buffers()) {
    const DType dtype = named.buffer.dtype();
    // Tables with keeps_dtype() are never converted.
    if (named.buffer.keeps_dtype() || !is_floating(dtype)) continue;
    t.check(dtype == precision.buffer, "{} is in {}", named.name, dtype_name(dtype));
  }
}

void walk(RankTest& t, const std::string& name, const std::string& precision_name, ShardMode mode) {
  const RankTest::NamedCase named(t, name + " in " + precision_name);
  const Precision precision = precision_named(precision_name);
  const auto model = tiny_model(name, {.dtype = precision.storage, .dropout = 0.1});
  model->parallelize({.mesh = t.world().mesh(), .shard = mode, .precision = precision});
  nn::initialize(model->module(), {.seed = 1});
  const auto optimizer = run_optimizer(model->module(), /*adamw=*/true);
  const models::LanguageModel language = model->language_model();

  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i < 2 * kTinyLength; ++i)
    tokens.push_back((i * i + t.rank()) % kTinyVocabulary);
  const Tensor batch = Tensor::from_vector(tokens, {2, kTinyLength});
  const Walk seen(t, model->module(), precision);
  Variable loss;
  const auto forward = collectives_of([&] {
    const models::LanguageModelResult result = language.forward(batch, {});
    loss = cross_entropy(result.logits, batch);
    if (result.auxiliary_loss.defined()) loss = loss + result.auxiliary_loss;
  });
  t.check(loss.dtype() == precision.accumulate, "the loss is in {}", dtype_name(loss.dtype()));
  t.check(seen.seen() > 50, "{} tensors were seen", seen.seen());
  const auto backward_records = collectives_of([&] { backward(loss); });
  optimizer->step();
  // On one rank the value is the shard itself, unless it is cast.
  const bool gathers =
      mode != ShardMode::kReplicate && (t.size() > 1 || precision.compute != precision.storage);
  check_collectives(t, forward, "all_gather", precision.compute, gathers);
  const std::string reduce = mode == ShardMode::kReplicate ? "all_reduce" : "reduce_scatter";
  const bool reduces = mode == ShardMode::kReplicate || t.size() > 1;
  check_collectives(t, backward_records, reduce, precision.reduce, reduces);
  check_stored(t, model->module(), *optimizer, precision);
}

TESSERA_RANK_TEST_WITH("every tensor has the dtype that the precision says", "[precision]",
                       {.worlds = {1, 2, 3}}) {
  for (const std::string& model : models_here()) {
    for (const std::string& precision : models::precision_names()) {
      for (const ShardMode mode : {ShardMode::kFull, ShardMode::kGrad, ShardMode::kReplicate})
        walk(t, model, precision, mode);
    }
  }
}

// ---- buffers and sums ----

// A layer with a buffer that is converted, and one that is not.
class WithBuffers final : public nn::Layer<WithBuffers> {
 public:
  explicit WithBuffers(DType dtype)
      : weight_({.shape = {3}, .dtype = dtype, .init = nn::init::constant(1)}),
        scale_({.shape = {3}, .dtype = DType::kF64, .init = nn::init::constant(2)}),
        count_({.shape = {1}, .dtype = DType::kI64, .init = nn::init::constant(0)}) {
    register_parameter("weight", weight_);
    register_buffer("scale", scale_);
    register_buffer("count", count_);
  }
  Variable forward(const Variable& x) {
    return x * weight_.value() * cast(Variable(scale_.tensor()), x.dtype());
  }

 private:
  nn::Parameter weight_;
  nn::Buffer scale_, count_;
};

TESSERA_RANK_TEST_WITH("buffers have the dtype that the precision says", "[precision]",
                       {.worlds = {1, 2, 3}}) {
  for (const std::string& name : models::precision_names()) {
    for (const ShardMode mode : {ShardMode::kFull, ShardMode::kReplicate}) {
      const Precision precision = precision_named(name);
      WithBuffers model(precision.storage);
      models::shard_module(model,
                           {.mesh = t.world().mesh(), .shard = mode, .precision = precision});
      nn::initialize(model, {.seed = 1});
      model(Variable(full({2, 3}, 1, {.dtype = precision.compute})));
      t.check(model.get_buffer("scale").dtype() == precision.buffer, "{}: {}", name,
              dtype_name(model.get_buffer("scale").dtype()));
      t.check(model.get_buffer("count").dtype() == DType::kI64, "a whole number was converted");
    }
  }
}

// Sums of ones that 16 bits can represent but cannot count to one by one: bf16 stays at 256, f16 at
// 2048.
TEST_CASE("sums are made in the dtype that the precision says", "[precision]") {
  constexpr std::int64_t kMany = 8192;
  for (const std::string& name : models::precision_names()) {
    INFO(name);
    const DType dtype = precision_named(name).compute;
    const Variable row(full({1, kMany}, 1, {.dtype = dtype}));
    const auto value = [](const Variable& x) {
      return cast(x.tensor(), DType::kF64).to_vector<double>().front();
    };
    CHECK(value(matmul(row, transpose(row, 0, 1))) == kMany);
    CHECK(value(sum(row)) == kMany);
    CHECK(value(mean(row)) == 1);
    // Softmax of equal numbers: its denominator counts them.
    CHECK(value(softmax(row, -1)) == 1.0 / kMany);
    CHECK(
        std::abs(value(cross_entropy(row, Tensor::from_vector(std::vector<std::int64_t>{5}, {1}))) -
                 std::log(8192.0)) < 0.05);
  }
  // f64 sums in f64.
  const Variable wide(Tensor::from_vector(std::vector<double>{1e9, 1e-6, -1e9}, {1, 3}));
  CHECK(sum(wide).item<double>() != 0);
}

}  // namespace
}  // namespace tessera::testing
