#pragma once

/// Saved state: names and what belongs to them, in the order in which they were put in.
///
///     nn::StateDict state = nn::state_dict(model);          // module_state.h
///     state.set("epoch", std::int64_t{3});
///     Tensor weight = state.tensor("up.weight");
///
/// Names join levels with dots: "blocks.3.up.weight", "optimizer.groups.0.lr". Tensors are handles:
/// a dict made by state_dict(model) shows the model's own elements until clone(). Values copy; used
/// by one thread at a time.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/nn/mesh/shard_spec.h"
#include "tessera/tensor/tensor.h"

namespace tessera::nn {

using StateValue = std::variant<Tensor, bool, std::int64_t, double, std::string>;
/// "tensor", "bool", "integer", "number" or "text".
const char* state_value_kind(const StateValue& value);

class StateDict {
 public:
  using Entry = std::pair<std::string, StateValue>;

  /// Replaces a value in its place; a new name goes to the end. Throws InvalidArgument for a name
  /// that is empty or has a NUL byte, and for an undefined tensor.
  void set(std::string name, StateValue value);
  /// A template, so that std::int64_t{0} is a number and not a null pointer.
  template <std::same_as<char> Char>
  void set(std::string name, const Char* text) {
    set(std::move(name), std::string(text));
  }
  /// Marks a tensor of the dict as this rank's part of a sharded tensor: the rows of the spec's boxes, one
  /// box after another. A file refuses it (state_file.h), a checkpoint saves it with the parts of other
  /// ranks (fsdp/checkpoint). set() under the same name removes the mark. Throws InvalidArgument where
  /// there is no such tensor.
  void mark_part(const std::string& name, const ShardSpec& spec);
  /// The spec if the entry is marked as a part; else null.
  const ShardSpec* part_of(const std::string& name) const;
  /// False where there was none.
  bool erase(const std::string& name);

  bool contains(const std::string& name) const { return positions_.count(name) != 0; }
  /// Null where there is none.
  const StateValue* find(const std::string& name) const;
  /// These throw InvalidArgument where the name is missing, and all but at() where its value is of
  /// another kind. number() also takes an integer.
  const StateValue& at(const std::string& name) const;
  const Tensor& tensor(const std::string& name) const;
  bool boolean(const std::string& name) const;
  std::int64_t integer(const std::string& name) const;
  double number(const std::string& name) const;
  const std::string& text(const std::string& name) const;

  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  std::vector<Entry>::const_iterator begin() const { return entries_.begin(); }
  std::vector<Entry>::const_iterator end() const { return entries_.end(); }

  /// Puts all of `other` in under prefix + name. Throws InvalidArgument where a name is taken.
  void add(const std::string& prefix, const StateDict& other);
  /// What stands under `prefix`, without it.
  StateDict part(const std::string& prefix) const;
  /// The same names, each tensor with elements of its own.
  StateDict clone() const;

 private:
  template <class T>
  const T& get(const std::string& name, const char* wanted) const;

  std::vector<Entry> entries_;
  std::map<std::string, std::size_t, std::less<>> positions_;
  std::map<std::string, ShardSpec> parts_;
};

/// What a load found; names with their prefix.
struct LoadReport {
  std::vector<std::string> missing;     ///< the model has it, the dict does not
  std::vector<std::string> unexpected;  ///< the dict has it, the model does not
};

}  // namespace tessera::nn
