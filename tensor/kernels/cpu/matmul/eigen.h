#pragma once

/// The only place where Eigen is included.
///
/// EIGEN_FAST_MATH=0 because with fast maths the bits of a result depend on where an array is
/// split; no threads of its own, because work is cut by us. Both come with the library's build
/// target.

#include <Eigen/Core>

static_assert(EIGEN_FAST_MATH == 0, "build against //tools/third_party:eigen");
#ifndef EIGEN_DONT_PARALLELIZE
#error "build against //tools/third_party:eigen"
#endif
