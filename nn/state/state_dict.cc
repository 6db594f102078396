#include "tessera/nn/state/state_dict.h"

#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::nn {
namespace {

constexpr const char* kWhere = "nn.StateDict";

bool starts_with(const std::string& name, const std::string& prefix) {
  return name.compare(0, prefix.size(), prefix) == 0;
}

}  // namespace

const char* state_value_kind(const StateValue& value) {
  constexpr const char* kKinds[] = {"tensor", "bool", "integer", "number", "text"};
  return kKinds[value.index()];
}

void StateDict::set(std::string name, StateValue value) {
  TESSERA_CHECK(name.find('\0') == std::string::npos, kWhere,
                "a name has a NUL byte, behind \"{}\"", name.c_str());
  TESSERA_CHECK(!name.empty(), kWhere, "a value needs a name");
  const Tensor* tensor = std::get_if<Tensor>(&value);
  TESSERA_CHECK(tensor == nullptr || tensor->defined(), kWhere, "the tensor \"{}\" is undefined",
                name);
  parts_.erase(name);
  const auto [found, is_new] = positions_.emplace(name, entries_.size());
  if (is_new) {
    entries_.emplace_back(std::move(name), std::move(value));
  } else {
    entries_[found->second].second = std::move(value);
  }
}

void StateDict::mark_part(const std::string& name, const ShardSpec& spec) {
  tensor(name);  // throws where there is none
  parts_.insert_or_assign(name, spec);
}

const ShardSpec* StateDict::part_of(const std::string& name) const {
  const auto found = parts_.find(name);
  return found == parts_.end() ? nullptr : &found->second;
}

bool StateDict::erase(const std::string& name) {
  const auto found = positions_.find(name);
  if (found == positions_.end()) return false;
  const std::size_t position = found->second;
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(position));
  positions_.erase(found);
  parts_.erase(name);
  for (auto& [other, index] : positions_) index -= index > position ? 1 : 0;
  return true;
}

const StateValue* StateDict::find(const std::string& name) const {
  const auto found = positions_.find(name);
  return found == positions_.end() ? nullptr : &entries_[found->second].second;
}

const StateValue& StateDict::at(const std::string& name) const {
  const StateValue* value = find(name);
  TESSERA_CHECK(value != nullptr, kWhere, "there is no \"{}\" among its {} entries", name, size());
  return *value;
}

template <class T>
const T& StateDict::get(const std::string& name, const char* wanted) const {
  const StateValue& value = at(name);
  const T* typed = std::get_if<T>(&value);
  TESSERA_CHECK(typed != nullptr, kWhere, "\"{}\" is of kind {}, not {}", name,
                state_value_kind(value), wanted);
  return *typed;
}

const Tensor& StateDict::tensor(const std::string& name) const {
  return get<Tensor>(name, "tensor");
}

bool StateDict::boolean(const std::string& name) const { return get<bool>(name, "bool"); }

std::int64_t StateDict::integer(const std::string& name) const {
  return get<std::int64_t>(name, "integer");
}

double StateDict::number(const std::string& name) const {
  if (const auto* integer = std::get_if<std::int64_t>(&at(name))) {
    return static_cast<double>(*integer);
  }
  return get<double>(name, "number");
}

const std::string& StateDict::text(const std::string& name) const {
  return get<std::string>(name, "text");
}

void StateDict::add(const std::string& prefix, const StateDict& other) {
  for (const auto& [name, value] : other.entries_) {
    TESSERA_CHECK(!contains(prefix + name), kWhere, "\"{}\" is there already", prefix + name);
    set(prefix + name, value);
  }
  for (const auto& [name, spec] : other.parts_) mark_part(prefix + name, spec);
}

StateDict StateDict::part(const std::string& prefix) const {
  StateDict out;
  for (const auto& [name, value] : entries_) {
    if (name.size() > prefix.size() && starts_with(name, prefix)) {
      out.set(name.substr(prefix.size()), value);
      if (const ShardSpec* spec = part_of(name)) out.mark_part(name.substr(prefix.size()), *spec);
    }
  }
  return out;
}

StateDict StateDict::clone() const {
  StateDict out;
  for (const auto& [name, value] : entries_) {
    const Tensor* tensor = std::get_if<Tensor>(&value);
    out.set(name, tensor == nullptr ? value : StateValue(tessera::clone(*tensor)));
  }
  out.parts_ = parts_;
  return out;
}

}  // namespace tessera::nn
