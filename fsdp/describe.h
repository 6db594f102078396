#pragma once

/// What is sharded in a model, and how, as a page for people.

#include <string>

#include "tessera/nn/module.h"

namespace tessera::fsdp {

/// A paragraph for each group at and below `model`, depth first, then the parameters that no group
/// holds. A group of several modules stands at its first one. Shapes, bytes and states are this
/// rank's; nothing is computed, gathered or communicated, and values need not exist yet.
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
/// *local* is this rank's real rows; *gathered* and *slots* are what the group takes while it is
/// gathered and while it collects gradients, alignment and padding rows included. A module that has
/// a state and no group says so in one line.
std::string describe(nn::Module& model);

}  // namespace tessera::fsdp
