#pragma once

/// Sums of products, by labels of dims or by lists of dims.
///
///     einsum("bhqd,bhkd->bhqk", {q, k})        a batch of q k^T
///     einsum("ij,jk,kl", {a, b, c})            a b c
///     einsum("ii->i", {x})                     the diagonal; "ii" is the trace
///     einsum("...ij,...jk->...ik", {a, b})     matmul
///     tensordot(a, b, {1, 2}, {0, 1})          over dims 1, 2 of a and 0, 1 of b
///
/// Made of matmul (and of mul where nothing is summed), whose dtypes and bits it has: operands are floating, of one
/// dtype and device, with any strides; 16-bit dtypes are rounded once by each product and sum. Anything else is an
/// InvalidArgument, and so is a product of more than 8 dims.

#include <string_view>
#include <vector>

#include "tessera/tensor/dims.h"
#include "tessera/tensor/tensor.h"

namespace tessera {

/// Einstein's notation, as in PyTorch. The equation has the labels (letters) of each operand's dims, separated by commas,
/// and behind "->" those of the result; spaces are ignored. Dims with one label are multiplied element by element, and
/// summed over if the result lacks it. A label twice in one operand takes the diagonal. "..." stands for any number of
/// dims, aligned at their ends; the result may have it. Without "->" the result has the dims of "..." and then the labels
/// that occur once, in alphabetical order, capitals first. Extents of one label are equal, or 1: those repeat.
///
/// Several operands are multiplied in pairs, always the pair with the fewest multiplications, the first of equal ones.
/// The result of a single operand may be a view of it.
Tensor einsum(std::string_view equation, const std::vector<Tensor>& operands);

/// The sum of products over the last `dims` dims of a and the first `dims` of b, in their order. 0: all products.
/// The result has the other dims of a, then those of b. Extents are equal, or one is 1.
Tensor tensordot(const Tensor& a, const Tensor& b, int dims = 2);
/// The same over dims_a[i] of a and dims_b[i] of b.
Tensor tensordot(const Tensor& a, const Tensor& b, const DimList& dims_a, const DimList& dims_b);

/// The sum of products over the last dim of both: a [..., k], b [..., k] -> the other dims of a, then those of b. If one
/// is 0-d, a b.
Tensor inner(const Tensor& a, const Tensor& b);

}  // namespace tessera
