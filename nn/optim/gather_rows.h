#pragma once

/// For optimizers that need a whole tensor where each rank has rows: Muon.

#include "tessera/nn/parameter.h"

namespace tessera::nn::optim {

/// The tensor of the global shape whose rows on this rank are `rows`, of local()'s shape and any
/// dtype. Rows are sent in chunks of equal size, padded where a rank has fewer, over each axis that
/// the parameter is sharded over; if it is not sharded, returns `rows` itself. Collective.
///
/// Throws InvalidArgument for a parameter that is not cut into chunks of rows in rank order, axes
/// counting outermost first.
Tensor gather_rows(const Parameter& parameter, const Tensor& rows);

/// The rows of `whole`, of the global shape, that this rank holds.
Tensor own_rows(const Parameter& parameter, const Tensor& whole);

}  // namespace tessera::nn::optim
