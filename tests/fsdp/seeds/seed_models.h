// The models of PyTorch's FSDP tests as arguments of train_against_reference(): their inputs, calls and
// losses.
#pragma once

#include <memory>
#include <vector>

#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/models/nets/transformer.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/random.h"
#include "tessera/tests/support/fsdp/reference_training.h"
#include "tessera/tests/support/models/nested.h"
#include "tessera/tests/support/models/small_models.h"
#include "tessera/tests/support/models/test_model.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {

inline Variable rows(const Shape& shape, int rank, DType dtype) {
  const Tensor x = Tensor::empty(shape, {.dtype = dtype});
  random::fill_normal(x, random::named_key(static_cast<std::uint64_t>(rank) + 7, "rows"),
                      random::whole(shape), 0, 1);
  return Variable(x);
}

// A model called with one tensor of the given shape; the loss is half the sum of squares.
template <class M>
MakeModel make_small(const typename M::Options& model, const Shape& shape) {
  using Adapted = AdaptedModel<M>;
  return [model, shape](const ModelRequest& request) {
    typename Adapted::Options options{.model = model};
    options.model.dtype = request.dtype;
    options.input = [shape, dtype = request.dtype](Device, int rank) {
      return std::vector{rows(shape, rank, dtype)};
    };
    options.call = [](M& m, const std::vector<Variable>& input) { return m(input.at(0)); };
    options.loss = [](const std::vector<Variable>&, const Variable& y) {
      return mul(sum(square(y)), 0.5);
    };
    if constexpr (requires(M & m) { m.groups(); }) {
      options.groups = [](M& m) { return m.groups(); };
    }
    return std::make_unique<Adapted>(options);
  };
}

inline MakeModel make_double_linear(bool use_second) {
  using Adapted = AdaptedModel<DoubleLinear>;
  return [use_second](const ModelRequest& request) {
    Adapted::Options options{.model = {.dim = 5, .use_second = use_second, .dtype = request.dtype}};
    options.input = [dtype = request.dtype](Device, int rank) {
      return std::vector{rows({3, 5}, rank, dtype)};
    };
    options.call = [](DoubleLinear& model, const std::vector<Variable>& input) {
      const auto [first, second] = model(input.at(0));
      return second.defined() ? first + mul(second, 2.0) : first;
    };
    options.groups = [](DoubleLinear& model) { return model.groups(); };
    return std::make_unique<Adapted>(options);
  };
}

// Tokens of this rank; the next token is the target.
inline Tensor tokens(int rank) {
  const Tensor out = Tensor::empty({3, 6}, {.dtype = DType::kI64});
  random::fill_integers(out, random::named_key(static_cast<std::uint64_t>(rank) + 1, "tokens"),
                        random::whole(out.shape()), 0, 8);
  return out;
}

inline MakeModel make_decoder(const models::ModelArgs& args) {
  using Adapted = AdaptedModel<models::Transformer>;
  return [args](const ModelRequest& request) {
    Adapted::Options options{.model = args};
    options.model.dtype = request.dtype;
    options.input = [](Device, int rank) {
      const Tensor all = tokens(rank);
      return std::vector{Variable(contiguous(all.slice(1, 0, 5))),
                         Variable(contiguous(all.slice(1, 1, 6)))};
    };
    options.call = [](models::Transformer& model, const std::vector<Variable>& input) {
      return model(input.at(0));
    };
    options.loss = [](const std::vector<Variable>& input, const Variable& logits) {
      return cross_entropy(flatten(logits, 0, 1), flatten(input.at(1).tensor()));
    };
    options.groups = [](models::Transformer& model) {
      std::vector<nn::Module*> out;
      for (models::TransformerBlock& block : model.blocks()) out.push_back(&block);
      return out;
    };
    return std::make_unique<Adapted>(options);
  };
}

inline MixtureOfExpertsOptions experts_of(RankTest& t, DType dtype = DType::kF64) {
  return {.mesh = distributed::make_mesh(t.world().mesh()), .dtype = dtype};
}

// A mesh of this rank alone: every rank makes a different group.
inline distributed::DeviceMesh own_mesh(RankTest& t) {
  return distributed::DeviceMesh("data", t.world().group()->subgroup({t.rank()}, "expert"),
                                 t.world().device());
}

inline auto expert_mesh(RankTest& t) {
  return [own = own_mesh(t)](const nn::Module& group) {
    return group.own_parameters().size() == 2 &&
                   group.own_parameters().front().parameter.has_tag("expert")
               ? own
               : distributed::DeviceMesh();
  };
}

}  // namespace tessera::testing
