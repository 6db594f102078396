#pragma once

// For load_state_dict: which entries of a dict belong to which members of a model, decided before
// anything is written.

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "tessera/nn/module.h"
#include "tessera/nn/state/module_state.h"
#include "tessera/nn/state/state_dict.h"

namespace tessera::nn::detail {

/// The option that helps a load, as the end of its error message. `names_differ`: names are missing or
/// unexpected. `shapes_differ`: a tensor has another shape than in the model. Empty if neither is true.
std::string load_remedy(bool names_differ, bool shapes_differ);

class LoadPlan {
 public:
  /// `state` and `options` must outlive the plan.
  LoadPlan(Module& module, const StateDict& state, const LoadStateDictOptions& options);

  const LoadReport& report() const { return report_; }
  /// What no load can do, one text each.
  const std::vector<std::string>& misfits() const { return misfits_; }
  /// Whether a misfit is a shape that differs, of something that is not sharded.
  bool shapes_differ() const { return shapes_differ_; }
  /// One text for each name of `report`, with dtype and shape where they are known.
  void describe(const LoadReport& report, std::vector<std::string>& out) const;
  /// Materialises members that have a source and no elements, and copies. Only without misfits.
  void copy() const;

 private:
  struct Target {
    std::string name;  // with the prefix
    std::variant<Parameter, Buffer> member;
    Shape shape;  // of this rank's elements
    DType dtype;
    Device device;
    std::vector<const StateDict::Entry*> sources;  // several where it is tied
  };

  bool is_wanted(const std::string& name) const;
  void add_targets(Module& module);
  void add_target(const std::string& name, const std::variant<Parameter, Buffer>& member);
  void find_sources(Module& module);
  void check(const Target& target);
  void check_tied(const Target& target);
  void check_patterns();

  const StateDict& state_;
  const LoadStateDictOptions& options_;
  std::vector<Target> targets_;
  std::map<const void*, std::size_t> by_id_;
  std::map<std::string, std::size_t> by_name_;
  LoadReport report_;
  std::vector<std::string> misfits_;
  bool shapes_differ_ = false;
};

}  // namespace tessera::nn::detail
