#include "tessera/nn/state/load_plan.h"

#include <cstring>
#include <type_traits>

#include "tessera/nn/name_pattern.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::nn::detail {
namespace {

using Member = std::variant<Parameter, Buffer>;

const void* id_of(const Member& member) {
  return std::visit([](const auto& handle) { return handle.id(); }, member);
}

// The shape of local() also before there is one: the boxes' rows, one box after another.
Shape shape_of(const Parameter& parameter) {
  if (parameter.is_materialized()) return parameter.local().shape();
  const ShardSpec& spec = parameter.spec();
  if (spec.global_shape.ndim() == 0) return {};
  Shape shape = spec.boxes.empty() ? spec.global_shape : spec.boxes.front().extent;
  shape[0] = 0;
  for (const ShardBox& box : spec.boxes) shape[0] += box.extent[0];
  return shape;
}
Shape shape_of(const Buffer& buffer) { return buffer.shape(); }

const Tensor& elements(const Parameter& parameter) { return parameter.local().tensor(); }
const Tensor& elements(const Buffer& buffer) { return buffer.tensor(); }

// The member of the model with this name, or null: only a look-up by name knows all names of tied
// parameters.
const void* find_id(Module& module, const std::string& name) {
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

const char* dtype_kind(DType dtype) {
  return dtype == DType::kBool ? "bool" : is_floating(dtype) ? "floating" : "integer";
}

std::string text_of(DType dtype, const Shape& shape) {
  return fmt::format("{} {}", dtype_name(dtype), shape.str());
}

std::string text_of(const StateValue& value) {
  const Tensor* tensor = std::get_if<Tensor>(&value);
  return tensor == nullptr ? state_value_kind(value) : text_of(tensor->dtype(), tensor->shape());
}

// Behind the shape of an entry that is one rank's part of a tensor.
std::string whole_text(const ShardSpec* part) {
  return part == nullptr ? "" : fmt::format(" (one rank's part of {})", part->global_shape.str());
}

// Behind the shape of a member that is sharded, where the state has all of it.
std::string sharded_text(const Member& member, const Shape& given) {
  const auto* parameter = std::get_if<Parameter>(&member);
  if (parameter == nullptr || parameter->spec().is_whole()) return "";
  const Shape& whole = parameter->spec().global_shape;
  return fmt::format(" (this rank's part of {}{})", whole.str(),
                     given == whole ? ": load full states with fsdp::load_full_state_dict" : "");
}

// As they would arrive, bit for bit.
bool same_elements(const Tensor& a, const Tensor& b, DType dtype) {
  if (a.device().is_null() || b.device().is_null()) return true;  // a plan: there are none
  return dispatch_all(dtype, "nn.load_state_dict", [&]<class T>() -> bool {
    const std::vector<T> x = cast(a, dtype).to_vector<T>(), y = cast(b, dtype).to_vector<T>();
    if constexpr (std::is_same_v<T, bool>) {
      return x == y;
    } else {
      return x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0;
    }
  });
}

}  // namespace

std::string load_remedy(bool names_differ, bool shapes_differ) {
  if (names_differ) return "; load with .strict = false to take what is there";
  return shapes_differ ? "; .only = {\"blocks.**\"} loads the names that match a pattern" : "";
}

LoadPlan::LoadPlan(Module& module, const StateDict& state, const LoadStateDictOptions& options)
    : state_(state), options_(options) {
  add_targets(module);
  find_sources(module);
  for (const Target& target : targets_) check(target);
  check_patterns();
}

// Patterns are of the model's names. An entry outside the prefix is always wanted, and unexpected.
bool LoadPlan::is_wanted(const std::string& name) const {
  return !name.starts_with(options_.prefix) ||
         matches_any(std::string_view(name).substr(options_.prefix.size()), options_.only);
}

// In the order of state_dict(), which is that of the problems.
void LoadPlan::add_targets(Module& module) {
  for (const NamedModule& named : module.named_modules()) {
    const std::string base = options_.prefix + named.name + (named.name.empty() ? "" : ".");
    for (const auto& [name, parameter] : named.module->own_parameters()) {
      add_target(base + name, parameter);
    }
    for (const auto& [name, buffer] : named.module->own_buffers()) {
      if (buffer.is_persistent()) add_target(base + name, buffer);
    }
  }
}

void LoadPlan::add_target(const std::string& name, const Member& member) {
  if (!by_id_.emplace(id_of(member), targets_.size()).second) return;
  by_name_.emplace(name, targets_.size());
  std::visit(
      [&](const auto& handle) {
        const Device device =
            handle.is_materialized() ? elements(handle).device() : options_.device;
        targets_.push_back({name, member, shape_of(handle), handle.dtype(), device, {}});
      },
      member);
}

void LoadPlan::find_sources(Module& module) {
  const std::string& prefix = options_.prefix;
  for (const StateDict::Entry& entry : state_) {
    if (!is_wanted(entry.first)) continue;
    const auto direct = by_name_.find(entry.first);
    if (direct != by_name_.end()) {
      targets_[direct->second].sources.push_back(&entry);
      continue;
    }
    const bool is_below = entry.first.starts_with(prefix);
    const auto tied =
        by_id_.find(is_below ? find_id(module, entry.first.substr(prefix.size())) : nullptr);
    if (tied != by_id_.end()) {
      targets_[tied->second].sources.push_back(&entry);
    } else {
      report_.unexpected.push_back(entry.first);
    }
  }
}

void LoadPlan::check(const Target& target) {
  if (target.sources.empty() && is_wanted(target.name)) report_.missing.push_back(target.name);
  const std::size_t misfits = misfits_.size();
  const auto misfit = [&](const StateDict::Entry& entry, const std::string& what) {
    misfits_.push_back(fmt::format("\"{}\" {}", entry.first, what));
  };
  for (const StateDict::Entry* entry : target.sources) {
    const Tensor* tensor = std::get_if<Tensor>(&entry->second);
    if (tensor == nullptr) {
      misfit(*entry, fmt::format("is no tensor ({})", text_of(entry->second)));
    } else if (tensor->shape() != target.shape) {
      const std::string given = whole_text(state_.part_of(entry->first)),
                        wanted = sharded_text(target.member, tensor->shape());
      misfit(*entry, fmt::format("has shape {}{}, in the model {}{}", tensor->shape().str(), given,
                                 target.shape.str(), wanted));
      shapes_differ_ = shapes_differ_ || (given.empty() && wanted.empty());
    } else if (std::strcmp(dtype_kind(tensor->dtype()), dtype_kind(target.dtype)) != 0) {
      misfit(*entry, fmt::format("is {} ({}), in the model {} ({})", dtype_name(tensor->dtype()),
                                 dtype_kind(tensor->dtype()), dtype_name(target.dtype),
                                 dtype_kind(target.dtype)));
    } else if (tensor->device().is_null() && !target.device.is_null()) {
      misfit(*entry, fmt::format("is on the null device, in the model on {}", target.device.str()));
    }
  }
  if (misfits_.size() == misfits) check_tied(target);
}

void LoadPlan::check_tied(const Target& target) {
  for (std::size_t i = 1; i < target.sources.size(); ++i) {
    const auto& [first, first_value] = *target.sources.front();
    const auto& [name, value] = *target.sources[i];
    if (same_elements(std::get<Tensor>(first_value), std::get<Tensor>(value), target.dtype))
      continue;
    misfits_.push_back(fmt::format(
        "\"{}\" and \"{}\" are tied in the model and differ in the state", first, name));
  }
}

void LoadPlan::check_patterns() {
  std::vector<std::string> names;
  for (const auto& [name, value] : state_)
    if (name.starts_with(options_.prefix)) names.push_back(name.substr(options_.prefix.size()));
  for (std::string& text : unmatched_patterns(options_.only, names))
    misfits_.push_back(std::move(text));
}

void LoadPlan::describe(const LoadReport& report, std::vector<std::string>& out) const {
  for (const std::string& name : report.missing) {
    const auto found = by_name_.find(name);
    std::string text;
    if (found != by_name_.end()) {
      const Target& target = targets_[found->second];
      text = fmt::format(" ({})", text_of(target.dtype, target.shape));
    }
    out.push_back(fmt::format("\"{}\"{} is missing", name, text));
  }
  for (const std::string& name : report.unexpected) {
    const StateValue* value = state_.find(name);
    const std::string text = value == nullptr ? "" : fmt::format(" ({})", text_of(*value));
    out.push_back(fmt::format("\"{}\"{} is unexpected", name, text));
  }
}

void LoadPlan::copy() const {
  for (const Target& target : targets_) {
    if (target.sources.empty()) continue;
    const Tensor& from = std::get<Tensor>(target.sources.front()->second);
    std::visit(
        [&](auto member) {
          member.materialize(target.device);
          const Tensor& to = elements(member);
          copy_(to, to_device(from, to.device()));
        },
        target.member);
  }
}

}  // namespace tessera::nn::detail
