#pragma once

/// Softmax, and losses that contain it, fused: separate operations would be slower or less
/// accurate. Operands may have any strides. 16-bit values are computed in f32 and rounded once.

#include "tessera/tensor/tensor.h"

namespace tessera {

/// y = exp(x - max) / sum(exp(x - max)) over `dim`. Floating; a 0-d tensor counts as one element
/// along dim 0. A row is NaN if it contains NaN or +inf, or only -inf.
Tensor softmax(const Tensor& x, int dim = -1);
/// x - max - log(sum(exp(x - max))) over `dim`.
Tensor log_softmax(const Tensor& x, int dim = -1);
/// Of x converted to `dtype`, which is floating; x may have any dtype.
Tensor softmax(const Tensor& x, int dim, DType dtype);
Tensor log_softmax(const Tensor& x, int dim, DType dtype);
/// y * (dy - sum(dy * y)), where y = softmax(x, dim). dy and y have one shape and dtype.
Tensor softmax_backward(const Tensor& dy, const Tensor& y, int dim = -1);
/// dy - exp(y) * sum(dy), where y = log_softmax(x, dim).
Tensor log_softmax_backward(const Tensor& dy, const Tensor& y, int dim = -1);

/// How the losses of the rows are combined.
enum class LossReduction : std::uint8_t { kNone, kMean, kSum };

struct CrossEntropyOptions {
  LossReduction reduction = LossReduction::kMean;
  std::int64_t ignore_index = -100;  ///< rows with this target are ignored
  double label_smoothing = 0;        ///< in [0, 1]: the part of the target spread over all classes
  Tensor weight = {};                ///< [classes], floating, one per class; undefined: all 1
};

/// Cross entropy of logits [..., classes] with class indices [...] (i64 or i32), including softmax.
/// With p = softmax(logits), w the weights and s the smoothing, for each row
///     loss = -(1 - s) w[target] log p[target] - s / classes * sum_c w[c] log p[c],
/// and 0 if the target is ignore_index. kNone -> [...]; else 0-d: kSum adds the rows, kMean divides that sum by the sum of w[target] over the rows that are not ignored (NaN if
/// there are none). This is PyTorch's definition, but 16-bit logits give a loss in f32: rounded to
/// 16 bits, a loss of 1.54 would be known to two digits.
///
/// A target that is neither ignore_index nor in [0, classes) throws InvalidArgument with row and
/// value. The kernel finds it, so on a queued stream the next host wait throws it.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets,
                     const CrossEntropyOptions& options = {});

/// A cross entropy whose classes are in parts has this part's classes as columns of the logits: those
/// from `first` on. The weight is that of all classes.
struct ClassPart {
  std::int64_t first = 0;
  std::int64_t classes = 0;  ///< of all parts; 0: the logits have all classes
};

/// The steps: the loss of each row, and the values for the derivative. Shaped like targets; f32 for
/// 16-bit logits, else logits' dtype.
///
/// Of a part, loss is the sum of its classes' terms with p = softmax over this part. The loss of all
/// parts follows from these results of each (autograd/ops/class_parts.h). A part whose logits are all
/// -inf, or which has no class, has the loss 0, and -inf as largest and log_sum_exp.
struct CrossEntropyResult {
  Tensor loss;          ///< 0 in ignored rows
  Tensor log_sum_exp;   ///< log(sum(exp(logits))); of a part, of logits - largest
  Tensor row_weight;    ///< w[target]; 0 in ignored rows, and where another part has the target
  Tensor largest = {};  ///< the largest logit; only of a part
};
CrossEntropyResult cross_entropy_rows(const Tensor& logits, const Tensor& targets,
                                      const CrossEntropyOptions& options = {},
                                      const ClassPart& part = {});

struct ReducedLoss {
  Tensor loss;          ///< in the dtype of rows.loss
  Tensor total_weight;  ///< the sum of row_weight; undefined unless kMean
};
ReducedLoss reduce_loss(const CrossEntropyResult& rows, LossReduction reduction);

/// The gradient of logits from the gradient of each row's loss, `dloss`, which has the dtype and
/// shape of log_sum_exp:
///   dloss ((1 - s) w[target] (p - onehot(target)) + s / classes (p sum_c w[c] - w)),
/// and 0 in ignored rows, with p = exp(logits - log_sum_exp). Of a part, log_sum_exp is that of all
/// classes.
Tensor cross_entropy_rows_backward(const Tensor& dloss, const Tensor& logits, const Tensor& targets,
                                   const Tensor& log_sum_exp,
                                   const CrossEntropyOptions& options = {},
                                   const ClassPart& part = {});
/// The same bits, written over the logits, which saves the memory of a result. The other operands
/// must not share memory with the logits, and the logits must not have overlapping elements (from
/// expand), else InvalidArgument. Non-contiguous logits that do not have 2 dims need a temporary
/// copy.
void cross_entropy_rows_backward_(const Tensor& logits, const Tensor& dloss, const Tensor& targets,
                                  const Tensor& log_sum_exp,
                                  const CrossEntropyOptions& options = {},
                                  const ClassPart& part = {});

// Rotary position embedding (Su et al., "RoFormer", 2021): pairs of features are rotated by an
// angle that grows with the position.

/// Which of the `features` of a head form a pair.
enum class RotaryPairing : std::uint8_t {
  kHalves,      ///< i and features / 2 + i: Llama in Hugging Face's format, GPT-NeoX
  kNeighbours,  ///< 2i and 2i + 1: the paper, and Llama in Meta's format
};

/// cos and sin of the angle for each position (row) and pair (column).
struct RotaryTable {
  Tensor cos;
  Tensor sin;
};

struct RotaryTableOptions {
  double base = 10000;        ///< "theta"; > 0
  std::int64_t offset = 0;    ///< position of the first row
  DType dtype = DType::kF32;  ///< f32 or f64
  Device device = default_device();
};
/// Both tensors are [positions, features / 2], for the angle (offset + row) * base^(-2 column /
/// features), computed in f64. features is even.
RotaryTable rotary_table(std::int64_t positions, std::int64_t features,
                         const RotaryTableOptions& options = {});

struct RotaryOptions {
  RotaryPairing pairing = RotaryPairing::kHalves;
  bool inverse = false;  ///< rotate by the negative angle
};
/// x [..., positions, heads, features]: the output of attention's projection, split into heads,
/// before heads and positions are transposed. Each pair (a, b) becomes (a cos - b sin, b cos + a
/// sin). A table of fewer than features / 2 columns rotates the first features only and copies the
/// others. Row i of the table belongs to position i of x: for a part of a sequence pass a slice of
/// the table.
///
/// x is floating, with any strides; the table is f64 for f64, else f32. The derivative is the same
/// operation with `inverse` flipped.
Tensor rotary(const Tensor& x, const RotaryTable& table, const RotaryOptions& options = {});

}  // namespace tessera
