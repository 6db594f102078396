#pragma once

/// The only place where Eigen is included.
///
/// The library's build target sets EIGEN_FAST_MATH=0, because with fast maths the bits of a result
/// depend on where an array is split, and disables Eigen's threads, because our code distributes
/// the work.

#include <Eigen/Core>

static_assert(EIGEN_FAST_MATH == 0, "build against //tools/third_party:eigen");
#ifndef EIGEN_DONT_PARALLELIZE
#error "build against //tools/third_party:eigen"
#endif
