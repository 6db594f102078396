// The plans of PyTorch's tests for models::Transformer.
#pragma once

#include "tessera/distributed/tensor_parallel/tensor_parallel.h"

namespace tessera::testing {

// Without parts of the sequence.
inline distributed::ParallelPlan transformer_plan() {
  using namespace distributed;
  return {{"*_embeddings", RowwiseParallel{}},
          {"layers.*.attention.wq", ColwiseParallel{}},
          {"layers.*.attention.wk", ColwiseParallel{}},
          {"layers.*.attention.wv", ColwiseParallel{}},
          {"layers.*.attention.wo", RowwiseParallel{}},
          {"layers.*.feed_forward.w1", ColwiseParallel{}},
          {"layers.*.feed_forward.w2", RowwiseParallel{}},
          {"output", ColwiseParallel{.output_layout = Replicate{}}}};
}

// Between the layers each rank has a part of the sequence.
inline distributed::ParallelPlan sequence_plan() {
  using namespace distributed;
  return {{"tok_embeddings", RowwiseParallel{.output_layout = Shard{1}}},
          {"pos_embeddings", RowwiseParallel{.output_layout = Shard{0}}},
          {"dropout", SequenceParallel{}},
          {"layers.*.*_norm", SequenceParallel{}},
          {"layers.*.*.resid_dropout", SequenceParallel{}},
          {"layers.*.attention", PrepareModuleInput{{LayoutChange{Shard{1}, Replicate{}}}}},
          {"layers.*.attention.wq", ColwiseParallel{}},
          {"layers.*.attention.wk", ColwiseParallel{}},
          {"layers.*.attention.wv", ColwiseParallel{}},
          {"layers.*.attention.wo", RowwiseParallel{.output_layout = Shard{1}}},
          {"layers.*.feed_forward.w1", ColwiseParallel{.input_layout = Shard{1}}},
          {"layers.*.feed_forward.w2", RowwiseParallel{.output_layout = Shard{1}}},
          {"norm", SequenceParallel{}},
          {"output", ColwiseParallel{.input_layout = Shard{1}, .output_layout = Replicate{}}}};
}

}  // namespace tessera::testing
