#include "tessera/fsdp/uneven_inputs.h"

#include <algorithm>
#include <utility>

#include "tessera/distributed/collectives.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"

namespace tessera::fsdp {
namespace {

constexpr const char* kWhere = "fsdp.UnevenInputs";

const distributed::ProcessGroup& checked(const std::shared_ptr<distributed::ProcessGroup>& group) {
  TESSERA_CHECK(group != nullptr, kWhere,
                "the group is null; give the group of all ranks that train together");
  return *group;
}

}  // namespace

const char* uneven_policy_name(UnevenPolicy policy) {
  switch (policy) {
    case UnevenPolicy::kStopTogether:
      return "stop_together";
    case UnevenPolicy::kPadWithZeroWeight:
      return "pad_with_zero_weight";
    case UnevenPolicy::kRefuse:
      return "refuse";
  }
  return "?";
}

UnevenInputs::UnevenInputs(const distributed::DeviceMesh& mesh, UnevenPolicy policy)
    : UnevenInputs(mesh.groups(), mesh.ranks(), mesh.rank(), policy) {}

UnevenInputs::UnevenInputs(std::shared_ptr<distributed::ProcessGroup> group, UnevenPolicy policy)
    : UnevenInputs({group}, checked(group).ranks(),
                   checked(group).ranks()[static_cast<std::size_t>(checked(group).rank())],
                   policy) {}

UnevenInputs::UnevenInputs(std::vector<std::shared_ptr<distributed::ProcessGroup>> groups,
                           std::vector<int> ranks, int rank, UnevenPolicy policy)
    : groups_(std::move(groups)),
      ranks_(std::move(ranks)),
      place_(
          static_cast<std::size_t>(std::find(ranks_.begin(), ranks_.end(), rank) - ranks_.begin())),
      policy_(policy),
      // A stream of its own: on a queued stream the host would wait for all earlier work.
      stream_(DeviceStream::create(kCpu, StreamKind::kInline, "uneven_inputs")) {}

std::vector<int> UnevenInputs::ranks_without(bool have_batch) const {
  const StreamGuard guard(stream_);
  std::vector<std::uint8_t> mine(ranks_.size(), 0);
  if (!have_batch) mine[place_] = 1;
  const Tensor without = Tensor::from_vector(mine, {static_cast<std::int64_t>(mine.size())}, kCpu);
  for (const auto& group : groups_) {
    distributed::all_reduce(*group, std::vector{without}, distributed::ReduceOp::kMax,
                            "uneven_inputs");
  }
  const std::vector<std::uint8_t> all = without.to_vector<std::uint8_t>();
  std::vector<int> out;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] != 0) out.push_back(ranks_[i]);
  }
  return out;
}

std::optional<Turn> UnevenInputs::next(bool have_batch) {
  TESSERA_CHECK_AS(StateError, !over_, kWhere,
                   "the epoch ended after {} steps; make another UnevenInputs for the next one",
                   steps_);
  const std::vector<int> without = ranks_without(have_batch);
  const bool nobody = without.size() == ranks_.size();
  over_ = nobody || (!without.empty() && policy_ != UnevenPolicy::kPadWithZeroWeight);
  TESSERA_CHECK_AS(StateError, nobody || without.empty() || policy_ != UnevenPolicy::kRefuse,
                   kWhere,
                   "ranks {} have no batch for step {}, and the others of {} ranks have; give all "
                   "ranks as many, or choose kStopTogether or kPadWithZeroWeight",
                   fmt::join(without, ", "), steps_ + 1, ranks_.size());
  if (over_) return std::nullopt;
  return Turn{.step = ++steps_,
              .has_batch = have_batch,
              .weight = have_batch ? 1.0 : 0.0,
              .ranks = static_cast<int>(ranks_.size() - without.size())};
}

}  // namespace tessera::fsdp
