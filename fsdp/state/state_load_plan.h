#pragma once

/// For load_full_state_dict: what of a dict of whole tensors belongs to what of a model, decided on
/// every rank before anything is written.

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "tessera/fsdp/state/mesh_ranks.h"
#include "tessera/fsdp/state/state_entries.h"
#include "tessera/nn/module.h"
#include "tessera/nn/state/state_dict.h"

namespace tessera::fsdp {

/// What is wrong, as all ranks see it.
struct LoadVerdict {
  nn::LoadReport report;
  std::vector<std::string> misfits;                 ///< what no load can do, one text each
  std::map<std::string, std::string> descriptions;  ///< of the report's names: dtype and shape
};

class FullLoadPlan {
 public:
  /// Both must outlive the plan. `device` is where what has no elements yet will be.
  FullLoadPlan(nn::Module& module, const std::vector<StateEntry>& entries, Device device);

  /// Of all ranks together; collective over `ranks`. Missing is what any of them lacks, unexpected
  /// what none of them knows.
  LoadVerdict verdict(const MeshRanks& ranks) const;
  /// Copies this rank's part of `whole`, entry number `entry`, to where it belongs, if anywhere;
  /// allocates what is not materialised.
  void copy(std::size_t entry, const Tensor& whole) const;

 private:
  using Member = std::variant<nn::Parameter, nn::Buffer>;
  struct Target {
    std::string name;
    Member member;
    std::vector<std::size_t> sources{};  // several where it is tied
  };

  void add_target(const std::string& name, const Member& member);
  void find_sources(nn::Module& module);
  void check(const Target& target);
  void check_tied(const Target& target);

  const std::vector<StateEntry>& entries_;
  Device device_;
  std::vector<Target> targets_;
  std::map<const void*, std::size_t> by_id_;
  std::map<std::size_t, std::size_t> by_entry_;  // target by its first source
  LoadVerdict mine_;
};

}  // namespace tessera::fsdp
