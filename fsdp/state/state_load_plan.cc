#include "tessera/fsdp/state/state_load_plan.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <type_traits>

#include "tessera/distributed/objects.h"
#include "tessera/fsdp/state/whole_values.h"
#include "tessera/nn/name_pattern.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::fsdp {
namespace {

using distributed::packed_texts;
using distributed::unpacked_texts;

const Shape& whole_shape(const nn::Parameter& parameter) { return parameter.spec().global_shape; }
const Shape& whole_shape(const nn::Buffer& buffer) { return buffer.shape(); }

Device device_of(const nn::Parameter& parameter) { return parameter.local().device(); }
Device device_of(const nn::Buffer& buffer) { return buffer.tensor().device(); }

void take_part(const nn::Parameter& parameter, const Tensor& whole) {
  copy_from_whole(parameter, parameter.local().tensor(), whole);
}
void take_part(const nn::Buffer& buffer, const Tensor& whole) {
  copy_(buffer.tensor(), to_device(whole, buffer.tensor().device()));
}

nn::ShardSpec spec_of(const nn::Parameter& parameter) { return parameter.spec(); }
nn::ShardSpec spec_of(const nn::Buffer& buffer) { return nn::ShardSpec::whole(buffer.shape()); }

Tensor rows_of(const nn::Parameter& parameter) { return parameter.local().tensor(); }
Tensor rows_of(const nn::Buffer& buffer) { return buffer.tensor(); }

const char* dtype_kind(DType dtype) {
  return dtype == DType::kBool ? "bool" : is_floating(dtype) ? "floating" : "integer";
}

std::string text_of(DType dtype, const Shape& shape) {
  return fmt::format("{} {}", dtype_name(dtype), shape.str());
}

std::string text_of(const StateEntry& entry) {
  const TensorEntry* tensor = entry.tensor();
  return tensor ? text_of(tensor->dtype, tensor->shape)
                : nn::state_value_kind(std::get<nn::StateValue>(entry.value));
}

// The id of the named member, or null: the lookup knows all names of a tied member.
const void* find_id(nn::Module& module, const std::string& name) {
  try {
    return module.get_parameter(name).id();
  } catch (const InvalidArgument&) {
  }
  try {
    return module.get_buffer(name).id();
  } catch (const InvalidArgument&) {
    return nullptr;
  }
}

// Compares the bits after the cast to the member's dtype.
bool same_elements(const Tensor& a, const Tensor& b, DType dtype) {
  if (a.device().is_null() || b.device().is_null()) return true;
  return dispatch_all(dtype, "fsdp.load_full_state_dict", [&]<class T>() -> bool {
    const std::vector<T> x = cast(a, dtype).to_vector<T>(), y = cast(b, dtype).to_vector<T>();
    if constexpr (std::is_same_v<T, bool>) {
      return x == y;
    } else {
      return x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0;
    }
  });
}

bool contains(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

void add_once(std::vector<std::string>& list, const std::string& text) {
  if (!contains(list, text)) list.push_back(text);
}

// A verdict as it is sent: four lists, and a text that is empty for false.
std::vector<std::string> texts_of(const LoadVerdict& verdict) {
  std::vector<std::string> descriptions;  // a name, then its description
  for (const auto& [name, text] : verdict.descriptions) {
    descriptions.insert(descriptions.end(), {name, text});
  }
  return {packed_texts(verdict.report.missing), packed_texts(verdict.report.unexpected),
          packed_texts(verdict.misfits), packed_texts(descriptions),
          verdict.shapes_differ ? "shapes differ" : ""};
}

LoadVerdict verdict_of(const std::vector<std::string>& texts) {
  LoadVerdict out;
  out.report.missing = unpacked_texts(texts.at(0));
  out.report.unexpected = unpacked_texts(texts.at(1));
  out.misfits = unpacked_texts(texts.at(2));
  const std::vector<std::string> descriptions = unpacked_texts(texts.at(3));
  for (std::size_t i = 0; i + 1 < descriptions.size(); i += 2) {
    out.descriptions[descriptions[i]] = descriptions[i + 1];
  }
  out.shapes_differ = !texts.at(4).empty();
  return out;
}

}  // namespace

FullLoadPlan::FullLoadPlan(nn::Module& module, const std::vector<StateEntry>& entries,
                           Device device, const std::vector<std::string>& only)
    : entries_(entries), device_(device), only_(only) {
  // In the order of state_dict(), so that problems are listed in that order.
  for (const nn::NamedModule& named : module.named_modules()) {
    const std::string base = named.name.empty() ? "" : named.name + ".";
    for (const auto& [name, parameter] : named.module->own_parameters()) {
      add_target(base + name, parameter);
    }
    for (const auto& [name, buffer] : named.module->own_buffers()) {
      if (buffer.is_persistent()) add_target(base + name, buffer);
    }
  }
  find_sources(module);
  for (const Target& target : targets_) check(target);
  check_patterns();
}

bool FullLoadPlan::is_wanted(const std::string& name) const { return nn::matches_any(name, only_); }

void FullLoadPlan::check_patterns() {
  std::vector<std::string> names;
  for (const StateEntry& entry : entries_) names.push_back(entry.name);
  for (std::string& text : nn::unmatched_patterns(only_, names))
    mine_.misfits.push_back(std::move(text));
}

void FullLoadPlan::add_target(const std::string& name, const Member& member) {
  const void* id = std::visit([](const auto& handle) { return handle.id(); }, member);
  if (by_id_.emplace(id, targets_.size()).second) targets_.push_back({name, member});
}

void FullLoadPlan::find_sources(nn::Module& module) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (!is_wanted(entries_[i].name)) continue;
    const auto found = by_id_.find(find_id(module, entries_[i].name));
    if (found == by_id_.end()) {
      mine_.report.unexpected.push_back(entries_[i].name);
      mine_.descriptions[entries_[i].name] = text_of(entries_[i]);
      continue;
    }
    Target& target = targets_[found->second];
    if (target.sources.empty()) by_entry_.emplace(i, found->second);
    target.sources.push_back(i);
  }
}

void FullLoadPlan::check(const Target& target) {
  const auto [dtype, shape, is_null] = std::visit(
      [this](const auto& handle) {
        const Device device = handle.is_materialized() ? device_of(handle) : device_;
        return std::tuple(handle.dtype(), whole_shape(handle), device.is_null());
      },
      target.member);
  if (target.sources.empty()) {
    if (!is_wanted(target.name)) return;
    mine_.report.missing.push_back(target.name);
    mine_.descriptions[target.name] = text_of(dtype, shape);
  }
  const std::size_t misfits = mine_.misfits.size();
  for (const std::size_t source : target.sources) {
    const StateEntry& entry = entries_[source];
    const TensorEntry* tensor = entry.tensor();
    const auto misfit = [&](const std::string& what) {
      mine_.misfits.push_back(fmt::format("\"{}\" {}", entry.name, what));
    };
    if (tensor == nullptr) {
      misfit(fmt::format("is no tensor ({})", text_of(entry)));
    } else if (tensor->shape != shape) {
      misfit(fmt::format("has shape {}, in the model {}", tensor->shape.str(), shape.str()));
      mine_.shapes_differ = true;
    } else if (std::strcmp(dtype_kind(tensor->dtype), dtype_kind(dtype)) != 0) {
      misfit(fmt::format("is {} ({}), in the model {} ({})", dtype_name(tensor->dtype),
                         dtype_kind(tensor->dtype), dtype_name(dtype), dtype_kind(dtype)));
    } else if (!tensor->has_elements && !is_null) {
      misfit("is on the null device: it has no elements");
    }
  }
  if (mine_.misfits.size() == misfits) check_tied(target);
}

// Only rank 0 has the tensors to compare.
void FullLoadPlan::check_tied(const Target& target) {
  for (std::size_t i = 1; i < target.sources.size(); ++i) {
    const StateEntry& first = entries_[target.sources.front()];
    const StateEntry& other = entries_[target.sources[i]];
    if (!first.tensor()->tensor.defined()) return;
    if (first.tensor()->tensor.device().is_null() && first.tensor()->has_elements) {
      // In a checkpoint: comparing them would mean to read them.
      mine_.misfits.push_back(fmt::format("\"{}\" and \"{}\" are tied in the model and saved apart",
                                          first.name, other.name));
      continue;
    }
    const DType dtype =
        std::visit([](const auto& handle) { return handle.dtype(); }, target.member);
    if (same_elements(first.tensor()->tensor, other.tensor()->tensor, dtype)) continue;
    mine_.misfits.push_back(fmt::format(
        "\"{}\" and \"{}\" are tied in the model and differ in the state", first.name, other.name));
  }
}

LoadVerdict FullLoadPlan::verdict(const GatherTexts& all_gather_texts) const {
  std::vector<LoadVerdict> all;
  for (const std::vector<std::string>& texts : all_gather_texts(texts_of(mine_))) {
    all.push_back(verdict_of(texts));
  }
  LoadVerdict out;
  for (const LoadVerdict& each : all) {
    for (const std::string& name : each.report.missing) add_once(out.report.missing, name);
    for (const std::string& text : each.misfits) add_once(out.misfits, text);
    out.shapes_differ = out.shapes_differ || each.shapes_differ;
    for (const auto& [name, text] : each.descriptions) out.descriptions[name] = text;
  }
  for (const std::string& name : all.front().report.unexpected) {
    const bool is_unknown = std::all_of(all.begin(), all.end(), [&name](const LoadVerdict& each) {
      return contains(each.report.unexpected, name);
    });
    if (is_unknown) out.report.unexpected.push_back(name);
  }
  return out;
}

std::optional<nn::ShardSpec> FullLoadPlan::part_of(std::size_t entry) const {
  const auto found = by_entry_.find(entry);
  if (found == by_entry_.end()) return std::nullopt;
  return std::visit([](const auto& member) { return spec_of(member); },
                    targets_[found->second].member);
}

Tensor FullLoadPlan::materialized(std::size_t entry) const {
  return std::visit(
      [&](auto member) {
        member.materialize(device_);
        return rows_of(member);
      },
      targets_[by_entry_.at(entry)].member);
}

void FullLoadPlan::copy(std::size_t entry, const Tensor& whole) const {
  const auto found = by_entry_.find(entry);
  if (found == by_entry_.end()) return;
  std::visit(
      [&](auto member) {
        member.materialize(device_);
        take_part(member, whole);
      },
      targets_[found->second].member);
}

}  // namespace tessera::fsdp
