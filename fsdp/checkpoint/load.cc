#include <algorithm>
#include <functional>
#include <initializer_list>
#include <optional>
#include <set>
#include <utility>

#include "tessera/distributed/rank_texts.h"
#include "tessera/fsdp/checkpoint/checkpoint.h"
#include "tessera/fsdp/checkpoint/model_entries.h"
#include "tessera/fsdp/checkpoint/optimizer_names.h"
#include "tessera/fsdp/checkpoint/stored_checkpoint.h"
#include "tessera/fsdp/state/load_entries.h"
#include "tessera/nn/mesh/shard_boxes.h"
#include "tessera/nn/module_members.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/memory_counters.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::checkpoint {
namespace {

using distributed::all_gather_lists;
using distributed::all_gather_texts;
using distributed::error_of;
using distributed::first_text;
using distributed::on_all_ranks;
using distributed::on_first_rank;
using distributed::throw_first;

constexpr const char* kWhere = "checkpoint.load";
constexpr const char *kOptimizer = "optimizer.", *kScheduler = "scheduler.", *kScaler = "scaler.",
                     *kValues = "values.";

// The index, read by the first rank alone: thousands of ranks would all ask for one file.
std::string shared_index(const std::string& folder, distributed::ProcessGroup* group) {
  std::string text;
  on_first_rank(group, [&] { text = read_index_text(folder); });
  return first_text(group, text);
}

class Loader {
 public:
  Loader(const std::string& folder, const State& state, const LoadOptions& options)
      : state_(state),
        options_(options),
        stored_(folder, shared_index(folder, state.group.get())) {}

  nn::LoadReport load() {
    check_same_members();
    on_all_ranks(group(), [this] { check_members(); });
    check_optimizer_names();
    on_all_ranks(group(), [this] {
      check_optimizer();
      check_bytes_of_others();
    });
    nn::LoadReport report;
    if (state_.model != nullptr) report = load_model();
    on_all_ranks(group(), [this] { load_others(); });
    return report;
  }

 private:
  distributed::ProcessGroup* group() const { return state_.group.get(); }

  // A member whose part of the checkpoint is missing would silently keep its values.
  void check_members() const {
    const auto check = [this](const void* member, std::string_view prefix, const char* what) {
      const auto begins = [prefix](const auto& entry) { return entry.starts_with(prefix); };
      const Index& index = stored_.index();
      const bool found =
          member == nullptr ||
          std::any_of(index.tensors.begin(), index.tensors.end(),
                      [&](const StoredTensor& tensor) { return begins(tensor.name); }) ||
          std::any_of(index.values.begin(), index.values.end(),
                      [&](const auto& entry) { return begins(entry.first); });
      TESSERA_CHECK(found, kWhere, "\"{}\" has no {}: it was saved without one", stored_.folder(),
                    what);
    };
    check(state_.model, kModelPrefix, "model");
    check(state_.optimizer, kOptimizer, "optimizer");
    check(state_.scheduler, kScheduler, "scheduler");
    check(state_.scaler, kScaler, "scaler");
  }

  // Ranks that load different members would wait for each other in different collectives.
  void check_same_members() const {
    std::string mine;
    for (const void* member : std::initializer_list<const void*>{
             state_.model, state_.optimizer, state_.scheduler, state_.scaler, state_.values})
      mine += member == nullptr ? '-' : '+';
    const std::vector<std::string> all = all_gather_texts(group(), mine);
    for (const std::string& each : all)
      TESSERA_CHECK(
          each == all.front(), kWhere,
          "ranks give different members of the state (model, optimizer, scheduler, scaler, "
          "values): {} and {}",
          all.front(), each);
  }

  OptimizerNames optimizer_names() const { return {*state_.optimizer, state_.model}; }

  // A rank may lack parameters of others (experts); those that no rank has are an error.
  void check_optimizer_names() const {
    if (state_.optimizer == nullptr) return;
    std::vector<std::string> mine;
    const OptimizerNames optimizer = optimizer_names();
    for (const auto& [name, parameter] : optimizer.parameters()) mine.push_back(name);
    std::set<std::string> known;
    for (const std::vector<std::string>& names : all_gather_lists(group(), mine))
      known.insert(names.begin(), names.end());
    std::vector<std::string> unknown;
    for (const auto& [name, value] : stored_.index().values.part("optimizer.parameters.")) {
      if (known.count(name) == 0) unknown.push_back(name);
    }
    TESSERA_CHECK(unknown.empty(), kWhere, "the optimizer has no parameter \"{}\" of \"{}\"",
                  fmt::join(unknown, "\", \""), stored_.folder());
  }

  // Tensors of another shape than their parameter's are whole on every rank.
  static nn::ShardSpec part_of_state(const StoredTensor& tensor, const nn::Parameter& parameter) {
    const nn::ShardSpec& spec = parameter.spec();
    return spec.global_shape == tensor.shape ? spec : nn::ShardSpec::whole(tensor.shape);
  }

  // Calls function(tensor, name, parameter) for the state tensors of this rank's parameters.
  template <class F>
  void each_state(const OptimizerNames& names, const F& function) const {
    each_tensor(stored_.index(), kOptimizer,
                [&](const StoredTensor& tensor, const std::string& name) {
                  const nn::Parameter* parameter = names.parameter_of(name);
                  if (parameter != nullptr) function(tensor, name, *parameter);
                });
  }

  // The optimizer's state with its own names; tensors come from `tensor_of(stored, part, parameter)`.
  template <class F>
  nn::StateDict optimizer_state(const F& tensor_of) const {
    const OptimizerNames names = optimizer_names();
    nn::StateDict saved;
    for (const auto& [name, value] : stored_.index().values.part(kOptimizer)) {
      if (!OptimizerNames::is_of_parameter(name) || names.parameter_of(name) != nullptr)
        saved.set(names.own_name(name), value);
    }
    each_state(names, [&](const StoredTensor& tensor, const std::string& name,
                          const nn::Parameter& parameter) {
      saved.set(names.own_name(name),
                tensor_of(tensor, part_of_state(tensor, parameter), parameter));
    });
    return saved;
  }

  // What the optimizer will say of its state, where it can say so before the model is loaded.
  void check_optimizer() const {
    if (state_.optimizer == nullptr) return;
    for (const nn::Parameter& parameter : state_.optimizer->parameters())
      if (!parameter.is_materialized()) return;
    state_.optimizer->check_state_dict(
        optimizer_state([](const StoredTensor& tensor, const nn::ShardSpec& part,
                           const nn::Parameter&) { return empty_rows(tensor, part, kNull); }));
  }

  nn::ShardSpec part_of_value(const StoredTensor& tensor, const std::string& name) const {
    const nn::ShardSpec* part = state_.values->part_of(name);
    if (part == nullptr) return nn::ShardSpec::whole(tensor.shape);
    TESSERA_CHECK(part->global_shape == tensor.shape, kWhere,
                  "\"{}\" has shape {}, and the state has a part of {}", tensor.name,
                  tensor.shape.str(), part->global_shape.str());
    return *part;
  }

  // Where the value is that is replaced.
  Device device_of_value(const std::string& name) const {
    const nn::StateValue* value = state_.values->find(name);
    const Tensor* tensor = value == nullptr ? nullptr : std::get_if<Tensor>(value);
    return tensor == nullptr ? options_.device : tensor->device();
  }

  void check(const StoredTensor& tensor, const nn::ShardSpec& part) {
    for (const nn::ShardBox& box : part.boxes) stored_.check(tensor, box);
  }

  void check_bytes_of_others() {
    if (state_.optimizer != nullptr)
      each_state(optimizer_names(), [this](const StoredTensor& tensor, const std::string&,
                                           const nn::Parameter& parameter) {
        check(tensor, part_of_state(tensor, parameter));
      });
    if (state_.values != nullptr)
      each_tensor(stored_.index(), kValues,
                  [this](const StoredTensor& tensor, const std::string& name) {
                    check(tensor, part_of_value(tensor, name));
                  });
  }

  void read(const StoredTensor& tensor, const nn::ShardSpec& part, const Tensor& rows) {
    nn::detail::for_each_box(rows, part, [&](const Tensor& out, const nn::ShardBox& box) {
      stored_.read(tensor, box, out);
    });
  }

  static Tensor empty_rows(const StoredTensor& tensor, const nn::ShardSpec& part, Device device) {
    const nn::ShardSpec whole = nn::ShardSpec::whole(tensor.shape);
    return Tensor::empty(nn::detail::rows_shape(part, whole, tensor.name),
                         {.dtype = tensor.dtype, .device = device});
  }

  Tensor new_rows(const StoredTensor& tensor, const nn::ShardSpec& part, Device device) {
    const Tensor rows = empty_rows(tensor, part, device);
    read(tensor, part, rows);
    return rows;
  }

  nn::LoadReport load_model() {
    std::optional<ModelEntries> made;
    on_all_ranks(group(), [&] {
      nn::detail::check_all_registered(*state_.model, kWhere);
      made.emplace(*state_.model, stored_.index());
    });
    const ModelEntries& entries = *made;
    const auto check_bytes = [&](const fsdp::FullLoadPlan& plan) {
      on_all_ranks(group(), [&] {
        for (std::size_t i = 0; i < entries.all().size(); ++i) {
          const auto part = plan.part_of(i);
          if (entries.stored(i) != nullptr && part) check(*entries.stored(i), *part);
        }
      });
    };
    std::string error;  // of this rank, since the check: the other ranks must not wait for it
    const auto copy = [&](const fsdp::FullLoadPlan& plan, std::size_t i) {
      const auto part = plan.part_of(i);
      if (!part || !error.empty()) return;
      error = error_of([&] {
        if (entries.stored(i) == nullptr) return plan.copy(i, entries.all()[i].tensor()->tensor);
        read(*entries.stored(i), *part, plan.materialized(i));
      });
    };
    const auto gather = [this](const std::vector<std::string>& texts) {
      return all_gather_lists(group(), texts);
    };
    const auto finish = [&](const std::function<void()>& work) {
      if (error.empty()) error = error_of(work);
      throw_first(group(), error);
    };
    nn::LoadReport report = fsdp::load_entries(*state_.model, entries.all(),
                                               {.where = kWhere,
                                                .strict = options_.strict,
                                                .device = options_.device,
                                                .seed = options_.seed,
                                                .only = options_.only,
                                                .all_gather_texts = gather,
                                                .check = check_bytes,
                                                .copy = copy,
                                                .finish = finish});
    return report;
  }

  void load_others() {
    const nn::StateDict& values = stored_.index().values;
    if (state_.optimizer != nullptr) load_optimizer();
    if (state_.scheduler != nullptr) state_.scheduler->load_state_dict(values.part(kScheduler));
    if (state_.scaler != nullptr) state_.scaler->load_state_dict(values.part(kScaler));
    if (state_.values == nullptr) return;
    for (const auto& [name, value] : values.part(kValues)) state_.values->set(name, value);
    each_tensor(stored_.index(), kValues, [&](const StoredTensor& tensor, const std::string& name) {
      const nn::ShardSpec part = part_of_value(tensor, name);
      state_.values->set(name, new_rows(tensor, part, device_of_value(name)));
      if (!part.is_whole()) state_.values->mark_part(name, part);
    });
  }

  void load_optimizer() {
    const MemoryCategoryScope category(MemoryCategory::kOptimizer);
    state_.optimizer->take_state_dict(optimizer_state([this](const StoredTensor& tensor,
                                                             const nn::ShardSpec& part,
                                                             const nn::Parameter& parameter) {
      return new_rows(tensor, part,
                      parameter.is_materialized() ? parameter.local().device() : options_.device);
    }));
  }

  const State& state_;
  const LoadOptions& options_;
  StoredCheckpoint stored_;
};

}  // namespace

nn::LoadReport load(const std::string& folder, const State& state, const LoadOptions& options) {
  return Loader(folder, state, options).load();
}

}  // namespace tessera::checkpoint
