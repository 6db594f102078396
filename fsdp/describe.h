#pragma once

/// A readable report of the groups in a model and their settings.

#include <string>

#include "tessera/nn/module.h"

namespace tessera::fsdp {

/// One paragraph per group at and below `model`, depth first, then the parameters that belong to no
/// group. A group of several modules is listed at its first module. Shapes, bytes and states are
/// those of this rank. Nothing is computed, gathered or communicated, and parameters need not be
/// materialized.
///
///     Net, as rank 0 of 2 has it: 2 groups
///
///     root: fully_shard of Net, sharded
///       mesh       data 2 over ranks 0,1 on cpu
///       options    reshard_after_forward true, compute in bf16
///       placement  parameter [Shard(0)], kept [Shard(0)], ...
///       prefetch   forward 1 ahead, backward the preceding group
///       modules    2
///       bytes      32 local, 32 gathered, 32 slots
///       parameter    global  local   stored  compute  reduce  placement
///       head.weight  [3, 4]  [2, 4]  f32     bf16     bf16    [Shard(0)]
///     ...
///
/// *local* is this rank's real rows. *gathered* and *slots* are the bytes of the group's gathered
/// buffer and of its gradient slots while those are allocated, alignment and padding rows included.
/// A module with a state but no group gets one line that says so.
std::string describe(nn::Module& model);

}  // namespace tessera::fsdp
