#pragma once

/// A debugging tool: checks that all ranks run their groups in the same order.
///
/// Gathers are collectives. Ranks that run their sharded modules in different orders wait for each
/// other until the timeout. If the sizes happen to match, they silently compute with each other's
/// parameters. (Checked process groups detect both, because they compare the labels of collectives,
/// which contain the group names; see distributed/checked.h.)
///
///     fsdp::OrderCheck check(model, {.compare_forwards = 1});      // the first forward, by itself
///     ...
///     check.compare();                                             // or wherever all ranks agree
///
/// The check records which sharded module enters forward. Its hooks run before the module's own
/// gather and are removed when the check is destroyed. Forwards that recomputation runs in backward
/// are not recorded. An *iteration* is one forward of the model if compare_forwards > 0; if it is
/// 0, everything since the last compare(). A comparison costs two small collectives along each axis
/// of the mesh, and the host waits for them.
///
/// The model must outlive the check. Only the rank's own thread may use it.

#include <cstdint>
#include <memory>
#include <string>

#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/nn/module.h"

namespace tessera::fsdp {

/// What to do if an iteration's order differs from this rank's first one.
enum class OrderChange : std::uint8_t {
  kAllow,
  kWarn,   ///< one line on standard error, for the first such iteration only
  kThrow,  ///< throw StateError
};

struct OrderCheckOptions {
  /// The number of forwards of the model that are compared with other ranks, each at its end.
  int compare_forwards = 1;
  /// Checked locally, without communication, at the end of each training iteration. Forwards in
  /// eval mode or without gradients are skipped. One rank alone may therefore throw.
  OrderChange on_change = OrderChange::kAllow;
  /// The mesh whose ranks are compared. Undefined: the mesh of the model's group, or else that of
  /// the first sharded module whose mesh has the most ranks.
  distributed::DeviceMesh mesh = {};
};

class OrderCheck {
 public:
  /// Construct it after the last fully_shard or replicate call. Throws InvalidArgument for a model
  /// in which nothing is sharded, for a container without a forward, and for compare_forwards below
  /// 0.
  explicit OrderCheck(nn::Module& model, const OrderCheckOptions& options = {});
  ~OrderCheck();
  OrderCheck(const OrderCheck&) = delete;
  OrderCheck& operator=(const OrderCheck&) = delete;

  /// Collective: compares the modules run so far in this iteration. Throws StateError on all ranks,
  /// naming the first position where two ranks differ and the module that each ran there.
  void compare();
  /// The report about an order that differs from the first iteration's; "" if there is none.
  const std::string& change() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tessera::fsdp
