#pragma once

/// For load_full_state_dict: matches the entries of a full dict with the members of a model, on
/// every rank, before anything is written.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tessera/fsdp/state/state_entries.h"
#include "tessera/fsdp/state/whole_values.h"
#include "tessera/nn/module.h"
#include "tessera/nn/state/state_dict.h"

namespace tessera::fsdp {

/// The problems of a load, the same on all ranks.
struct LoadVerdict {
  nn::LoadReport report;
  std::vector<std::string> misfits;                 ///< problems that make the load impossible, one
                                                    ///< text each
  bool shapes_differ = false;                       ///< one of them is a tensor's other shape
  std::map<std::string, std::string> descriptions;  ///< dtype and shape of the report's names
};

/// All ranks' lists of texts on every rank, from this rank's.
using GatherTexts =
    std::function<std::vector<std::vector<std::string>>(const std::vector<std::string>&)>;

class FullLoadPlan {
 public:
  /// Both must outlive the plan. Members without elements will be allocated on `device`. Names that match
  /// no pattern of `only` (nn/name_pattern.h) are left alone: entries, and members without an entry; no
  /// pattern: all count. A pattern that matches no entry is a misfit.
  FullLoadPlan(nn::Module& module, const std::vector<StateEntry>& entries, Device device,
               const std::vector<std::string>& only = {});

  /// The verdict of all ranks together. A name is missing if any rank lacks it, unexpected if no
  /// rank knows it. Collective.
  LoadVerdict verdict(const GatherTexts& all_gather_texts) const;
  /// The part that this rank has of the member of entry number `entry`; nothing if it has no such
  /// member.
  std::optional<nn::ShardSpec> part_of(std::size_t entry) const;
  /// The tensor with that part's rows. Allocates a member that is not materialized.
  Tensor materialized(std::size_t entry) const;
  /// Copies this rank's part of `whole` (entry number `entry`) to its member, if it has one, and
  /// allocates a member that is not materialized.
  void copy(std::size_t entry, const Tensor& whole) const;

 private:
  using Member = std::variant<nn::Parameter, nn::Buffer>;
  struct Target {
    std::string name;
    Member member;
    std::vector<std::size_t> sources{};  // several if it is tied
  };

  void add_target(const std::string& name, const Member& member);
  void find_sources(nn::Module& module);
  void check(const Target& target);
  void check_tied(const Target& target);
  bool is_wanted(const std::string& name) const;
  void check_patterns();

  const std::vector<StateEntry>& entries_;
  Device device_;
  std::vector<std::string> only_;
  std::vector<Target> targets_;
  std::map<const void*, std::size_t> by_id_;
  std::map<std::size_t, std::size_t> by_entry_;  // maps a target's first source to the target
  LoadVerdict mine_;
};

}  // namespace tessera::fsdp
