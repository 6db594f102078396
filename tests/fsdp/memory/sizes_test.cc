// Parameters of 0, 1, 2, 3, 5, 7, 97 and 32,001 rows over 1 to 8 ranks: uneven chunks, empty ones,
// and more ranks than rows. Padding rows have no effect: NaN in them reaches no result.

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tessera/distributed/decorators.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/training/clip_grad.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/trace.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

constexpr std::array<std::int64_t, 8> kSizes = {0, 1, 2, 3, 5, 7, 97, 32001};
constexpr std::int64_t kColumns = 2;

/// gelu(x W^T + b) with any number of rows in W, also none.
class Rows final : public nn::Layer<Rows> {
 public:
  explicit Rows(std::int64_t rows)
      : weight_(
            {.shape = {rows, kColumns}, .dtype = DType::kF64, .init = nn::init::uniform(-1, 1)}),
        bias_({.shape = {rows}, .dtype = DType::kF64, .init = nn::init::uniform(-1, 1)}) {
    register_parameter("weight", weight_);
    register_parameter("bias", bias_);
  }
  Variable forward(const Variable& x) { return gelu(linear(x, weight_.value(), bias_.value())); }

 private:
  nn::Parameter weight_, bias_;
};

/// One layer of each size. The result has each layer's mean over its columns, side by side.
class AllSizes final : public nn::Layer<AllSizes> {
 public:
  AllSizes() {
    for (const std::int64_t size : kSizes) {
      rows_.push_back(std::make_unique<Rows>(size));
      register_module("rows" + std::to_string(size), *rows_.back());
    }
  }
  Variable forward(const Variable& x) {
    Variable total;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const double scale = 1.0 / static_cast<double>(std::max<std::int64_t>(kSizes[i], 1));
      const Variable y = mul(sum((*rows_[i])(x), std::vector<int>{1}, /*keepdim=*/true), scale);
      total = total.defined() ? add(total, y) : y;
    }
    return total;
  }
  const std::vector<std::unique_ptr<Rows>>& rows() const { return rows_; }

 private:
  std::vector<std::unique_ptr<Rows>> rows_;
};

struct Case {
  const char* name;
  bool one_group = false;
  fsdp::FullyShardOptions options = {};
  double tolerance = 1e-12;
};

void fill_nan(const Tensor& x) { fill_(x, std::numeric_limits<double>::quiet_NaN()); }

/// Sets every gradient slot's padding rows to NaN just before they are sent. Only if each size is a
/// group, which the label tells.
std::shared_ptr<distributed::ProcessGroup> with_poisoned_slots(
    const std::shared_ptr<distributed::ProcessGroup>& group) {
  return distributed::call(
      group, {.before = [](const distributed::Collective& call) {
        constexpr std::string_view kPrefix = "rows";
        const std::string& label = call.label.text;
        if (call.kind != distributed::CollectiveKind::kReduceScatter || !label.starts_with(kPrefix))
          return;
        const std::int64_t rows = std::stoll(label.substr(kPrefix.size()));
        for (const Tensor& slot : call.inputs) {
          fill_nan(slot.slice(0, rows, slot.dim(0)));
        }
      }});
}

/// Sets the padding that this rank sends in a gather to NaN.
void poison_shards(const nn::Module& model) {
  for (const nn::Parameter& parameter : model.parameters()) {
    const Tensor padded = parameter.padded_local();
    fill_nan(padded.slice(0, parameter.local().dim(0), padded.dim(0)));
  }
}

void shard(AllSizes& model, const Case& c, const distributed::DeviceMesh& mesh) {
  fsdp::FullyShardOptions options = c.options;
  options.mesh = mesh;
  if (!c.one_group) {
    for (const auto& rows : model.rows()) fsdp::fully_shard(*rows, options);
  }
  fsdp::fully_shard(model, options);
}

/// Unshards every group by hand and compares its values; after reshard nothing is left.
void check_values(RankTest& t, const Case& c, AllSizes& model, const AllSizes& reference) {
  for (nn::Module* module : fsdp::sharded_modules(model)) fsdp::of(*module).unshard();
  const auto left = model.named_parameters();
  const auto right = reference.parameters();
  for (std::size_t i = 0; i < left.size(); ++i) {
    const double error = worst_error(left[i].parameter.value().tensor(), right[i].value().tensor());
    t.check(error <= c.tolerance, "{}: value of {} differs by {}", c.name, left[i].name, error);
  }
  for (nn::Module* module : fsdp::sharded_modules(model)) fsdp::of(*module).reshard();
  for (const nn::NamedParameter& named : left) {
    t.check(named.parameter.state() == nn::ParameterState::kSharded, "{}: {} is not sharded",
            c.name, named.name);
  }
  const auto gathered = t.world().context()->memory().current()[MemoryCategory::kGathered];
  t.check(gathered == 0, "{}: {} gathered bytes remain", c.name, gathered);
}

void train(RankTest& t, const Case& c) {
  AllSizes model, reference;
  shard(model, c, t.world().mesh().with_group("data", with_poisoned_slots(t.world().group())));
  nn::initialize(model, {.seed = 5});
  nn::initialize(reference, {.seed = 5});
  nn::optim::SGD sgd(model.parameters(), kSgd), reference_sgd(reference.parameters(), kSgd);
  for (std::uint64_t step = 0; step < 2; ++step) {
    poison_shards(model);
    const Tensor x = random_rows(5, kColumns, DType::kF64, step);
    backward(sharded_loss(model(Variable(my_rows(x, t.world()))), t.world()));
    backward(plain_loss(reference(Variable(x))));
    std::string difference =
        compare_with_reference(model, reference, c.tolerance, /*gradients=*/true);
    t.check(difference.empty(), "{}, step {}: {}", c.name, step, difference);
    const auto norm = nn::clip_grad_norm(model.parameters(), 0.1).item<double>();
    const auto reference_norm = nn::clip_grad_norm(reference.parameters(), 0.1).item<double>();
    t.check(std::abs(norm - reference_norm) <= c.tolerance * std::max(1.0, reference_norm),
            "{}: the norm is {}, of the reference {}", c.name, norm, reference_norm);
    sgd.step();
    reference_sgd.step();
    difference = compare_with_reference(model, reference, c.tolerance, /*gradients=*/true);
    t.check(difference.empty(), "{}, after step {}: {}", c.name, step, difference);
    sgd.zero_grad();
    reference_sgd.zero_grad();
    check_values(t, c, model, reference);
  }
}

TESSERA_RANK_TEST_WITH("fsdp sizes: each parameter's rows over 1 to 8 ranks, padding poisoned",
                       "[fsdp]", ({.worlds = {1, 2, 3, 4, 5, 6, 7, 8}})) {
  train(t, {.name = "a group each"});
  train(t, {.name = "one group", .one_group = true});
  train(t, {.name = "kept", .options = {.mesh = {}, .reshard_after_forward = false}});
}

TESSERA_RANK_TEST_WITH("fsdp sizes: f32 values and the host's shards, padding poisoned", "[fsdp]",
                       ({.worlds = {1, 2, 3, 4, 5, 6, 7, 8}})) {
  train(t, {.name = "f32 values",
            .options = {.mesh = {}, .mixed_precision = {.param_dtype = DType::kF32}},
            .tolerance = 1e-5});
  train(t, {.name = "offloaded", .options = {.mesh = {}, .offload = fsdp::CpuOffload{}}});
}

// ---- zeroing ------------------------------------------------------------------------------------

/// The number of kernels in `body` that fill, scale or add in place.
std::int64_t axpbys(const std::function<void()>& body) {
  ExecutionTrace trace;
  {
    const TraceScope recording(trace);
    body();
  }
  const std::vector<KernelRecord> kernels = trace.all<KernelRecord>();
  return std::count_if(kernels.begin(), kernels.end(),
                       [](const KernelRecord& kernel) { return kernel.name.starts_with("axpby"); });
}

/// The same for a step with so many backwards, of which only the last reduces.
template <class M>
std::int64_t axpbys_of_step(M& model, int passes) {
  const std::int64_t count = axpbys([&] {
    for (int pass = 0; pass < passes; ++pass) {
      if (fsdp::has_state(model)) fsdp::of(model).set_requires_gradient_sync(pass + 1 == passes);
      backward(sum(square(model(Variable(random_rows(3, kColumns, DType::kF64, 1))))));
    }
  });
  for (nn::Parameter parameter : model.parameters()) parameter.zero_grad();
  return count;
}

TESSERA_RANK_TEST_WITH(
    "fsdp sizes: padding is zeroed once a reduction, and only where there is any", "[fsdp]",
    ({.worlds = {2, 3, 5}})) {
  for (const std::int64_t rows : {2 * t.size(), 2 * t.size() - 1}) {
    Rows model(rows), reference(rows);
    fsdp::fully_shard(model, {.mesh = t.world().mesh()});
    nn::initialize(model, {.seed = 5});
    nn::initialize(reference, {.seed = 5});
    axpbys_of_step(model, 1);  // the first steps create state for later ones
    axpbys_of_step(reference, 1);
    // Of weight and bias, the second of both together.
    const std::int64_t zeroed = rows % t.size() == 0 ? 0 : 2, scaled = 1;
    const std::int64_t plain = axpbys_of_step(reference, 1);
    for (const int passes : {1, 2}) {
      const std::int64_t more = axpbys_of_step(model, passes) - passes * plain;
      t.check(more == zeroed + scaled,
              "{} rows, {} passes: {} kernels beside the reference's, expected {}", rows, passes,
              more, zeroed + scaled);
    }
  }
}

// Memory that was never written holds NaN here.
TESSERA_RANK_TEST_WITH("fsdp sizes: the padding of shards is zero, however they come about",
                       "[fsdp]", ({.worlds = {2, 3, 5}})) {
  const std::int64_t rows = 2 * t.size() - 1;
  const auto check_tails = [&](const nn::Module& model, const char* when) {
    for (const nn::Parameter& parameter : model.parameters()) {
      const Tensor padded = parameter.padded_local();
      const Tensor tail = padded.slice(0, parameter.local().dim(0), padded.dim(0));
      t.check(padded.dim(0) == 2, "{}: {} has room for {} rows", when, parameter.name(),
              padded.dim(0));
      for (const double x : cast(tail, DType::kF64).to_vector<double>())
        t.check(x == 0, "{}: the padding of {} has {}", when, parameter.name(), x);
    }
  };
  for (const bool values_first : {false, true}) {
    Rows model(rows);
    if (values_first) nn::initialize(model, {.seed = 5});
    fsdp::fully_shard(model, {.mesh = t.world().mesh()});
    if (!values_first) nn::initialize(model, {.seed = 5});
    check_tails(model, values_first ? "cut down" : "initialized");
    nn::optim::SGD sgd(model.parameters(), kSgd);
    backward(sum(square(model(Variable(random_rows(3, kColumns, DType::kF64, 1))))));
    sgd.step();
    sgd.zero_grad();
    check_tails(model, "after a step");
    model.to(DType::kF32);
    check_tails(model, "converted");
  }
}

}  // namespace
}  // namespace tessera::testing
