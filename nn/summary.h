#pragma once

/// A model as a table, for people.

#include <string>

#include "tessera/nn/module.h"

namespace tessera::nn {

/// One line a module: name (indented by level), type, elements of its own parameters, and what they
/// are; buffers and what is special (frozen, tied, another dtype than the model's first, sharded)
/// behind the shapes. Below, the totals, each parameter counted once: elements, trainable ones, and
/// bytes as stored. Shapes are global, so the table is equal on all ranks. Needs no elements.
///
///     module          type        parameters
///     Mlp             Mlp                 82
///       up            Linear              48  weight [8, 5], bias [8]
///       down          Linear              34  weight [2, 8] frozen, ...
///     82 parameters, 18 trainable, 328 bytes; 0 buffers, 0 bytes
std::string summary(Module& module);

}  // namespace tessera::nn
