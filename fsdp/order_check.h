#pragma once

/// Do all ranks run their groups in the same order? A tool for finding mistakes.
///
/// Gathers are collectives: ranks that run their sharded modules in different orders wait for each
/// other until the deadline, or, where the sizes happen to agree, compute with each other's
/// parameters without a sign. (Checked groups see the first; distributed/checked.h.)
///
///     fsdp::OrderCheck check(model, {.compare_forwards = 1});      // the first forward, by itself
///     ...
///     check.compare();                                             // or wherever all ranks agree
///
/// Recorded is which sharded module enters forward, through hooks that run before its own gather,
/// and go with the check; what recompute runs again in backward does not count. An *iteration* is
/// one forward of the model with compare_forwards > 0; with 0 it is all that ran since the last
/// compare(). Comparing costs two small collectives along each axis of the mesh, and the host
/// waits.
///
/// The model outlives the check. Used by the thread of its rank.

#include <cstdint>
#include <memory>
#include <string>

#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/nn/module.h"

namespace tessera::fsdp {

/// What becomes of an iteration whose order is not that of this rank's first one.
enum class OrderChange : std::uint8_t {
  kAllow,
  kWarn,   ///< a line on standard error, for the first such iteration only
  kThrow,  ///< StateError
};

struct OrderCheckOptions {
  /// So many forwards of the model are compared with the other ranks', each at its end.
  int compare_forwards = 1;
  /// Looked at without communication, where an iteration ends, in training: forwards in evaluation
  /// mode or without gradients are left out. So one rank alone may throw.
  OrderChange on_change = OrderChange::kAllow;
  /// Whose ranks are compared. Undefined: the mesh of the model's group, or of the first sharded
  /// module with most ranks.
  distributed::DeviceMesh mesh = {};
};

class OrderCheck {
 public:
  /// After the last fully_shard and replicate. Throws InvalidArgument for a model in which nothing
  /// is sharded, for a container without a forward, and for compare_forwards below 0.
  explicit OrderCheck(nn::Module& model, const OrderCheckOptions& options = {});
  ~OrderCheck();
  OrderCheck(const OrderCheck&) = delete;
  OrderCheck& operator=(const OrderCheck&) = delete;

  /// Compares what this iteration ran so far. Throws StateError on all ranks, naming the first
  /// place where two differ, and what each of them ran there. Collective.
  void compare();
  /// What was reported of an order that is not the first iteration's: "" while nothing was.
  const std::string& change() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tessera::fsdp
