#include "tessera/autograd/ops/inplace.h"

#include "tessera/autograd/in_place.h"
#include "tessera/autograd/ops/clamp_bound.h"
#include "tessera/autograd/ops/internal.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/mask.h"

namespace tessera {
namespace {

using detail::Like;
using detail::save_if;

// `b` as a derivative of an operation that writes `x` saves it: x itself is about to change.
Variable kept(const Variable& b, const Variable& x) {
  return b.same_as(x) ? detail::copy_of(b) : b;
}

}  // namespace

void add_(const Variable& x, const Variable& b) {
  record_in_place("add_", x, {b}, [&](const Tensor& t) {
    add_(t, b.tensor());
    return [b = Like(b)](const Variable& dy, const BackwardContext& context) {
      return Gradients{dy, context.needs(1) ? b.fit(dy) : Variable()};
    };
  });
}

void sub_(const Variable& x, const Variable& b) {
  record_in_place("sub_", x, {b}, [&](const Tensor& t) {
    sub_(t, b.tensor());
    return [b = Like(b)](const Variable& dy, const BackwardContext& context) {
      return Gradients{dy, context.needs(1) ? neg(b.fit(dy)) : Variable()};
    };
  });
}

namespace {

void add_scaled(const Variable& x, const Variable& b, double alpha, bool subtract) {
  record_in_place(subtract ? "sub_" : "add_", x, {b}, [&](const Tensor& t) {
    subtract ? sub_(t, b.tensor(), alpha) : add_(t, b.tensor(), alpha);
    return [b = Like(b), factor = subtract ? -alpha : alpha](const Variable& dy,
                                                             const BackwardContext& context) {
      return Gradients{dy, context.needs(1) ? b.fit(mul(dy, factor)) : Variable()};
    };
  });
}

}  // namespace

void add_(const Variable& x, const Variable& b, double alpha) { add_scaled(x, b, alpha, false); }

void sub_(const Variable& x, const Variable& b, double alpha) { add_scaled(x, b, alpha, true); }

void mul_(const Variable& x, const Variable& b) {
  record_in_place("mul_", x, {b}, [&](const Tensor& t) {
    const Variable factor = kept(b, x);
    SavedVariable old = detail::is_recording(std::span(&b, 1))
                            ? SavedVariable(detail::copy_of(x), "mul_")
                            : SavedVariable();
    mul_(t, factor.tensor());
    return [x_like = Like(x), b_like = Like(b), old = std::move(old),
            b = save_if(x.requires_grad(), factor, "mul_")](const Variable& dy,
                                                            const BackwardContext& context) {
      Gradients gradients(2);
      if (context.needs(0)) gradients[0] = x_like.fit(mul(dy, b.unpack()));
      if (context.needs(1)) gradients[1] = b_like.fit(mul(dy, old.unpack()));
      return gradients;
    };
  });
}

// The derivative by b reads the result, which stays: d(x/b)/db = -(x/b)/b.
void div_(const Variable& x, const Variable& b) {
  record_in_place("div_", x, {b}, [&](const Tensor& t) {
    const Variable divisor = kept(b, x);
    div_(t, divisor.tensor());
    return
        [x_like = Like(x), b_like = Like(b), y = SavedTensor(t, "div_"),
         b = SavedVariable(divisor, "div_")](const Variable& dy, const BackwardContext& context) {
          Gradients gradients(2);
          const Variable dx = div(dy, b.unpack());
          if (context.needs(0)) gradients[0] = x_like.fit(dx);
          if (context.needs(1))
            gradients[1] = b_like.fit(neg(mul(dx, context.output(0, y.unpack()))));
          return gradients;
        };
  });
}

void add_(const Variable& x, double b) {
  record_in_place("add_", x, {}, [&](const Tensor& t) {
    add_(t, b);
    return [](const Variable& dy, const BackwardContext&) { return Gradients{dy}; };
  });
}

void mul_(const Variable& x, double b) {
  record_in_place("mul_", x, {}, [&](const Tensor& t) {
    mul_(t, b);
    return [b](const Variable& dy, const BackwardContext&) { return Gradients{mul(dy, b)}; };
  });
}

void neg_(const Variable& x) {
  record_in_place("neg_", x, {}, [](const Tensor& t) {
    neg_(t);
    return [](const Variable& dy, const BackwardContext&) { return Gradients{neg(dy)}; };
  });
}

void exp_(const Variable& x) {
  record_in_place("exp_", x, {}, [](const Tensor& t) {
    exp_(t);
    return [y = SavedTensor(t, "exp_")](const Variable& dy, const BackwardContext& context) {
      return Gradients{mul(dy, context.output(0, y.unpack()))};
    };
  });
}

void sqrt_(const Variable& x) {
  record_in_place("sqrt_", x, {}, [](const Tensor& t) {
    sqrt_(t);
    return [y = SavedTensor(t, "sqrt_")](const Variable& dy, const BackwardContext& context) {
      return Gradients{div(mul(dy, 0.5), context.output(0, y.unpack()))};
    };
  });
}

void tanh_(const Variable& x) {
  record_in_place("tanh_", x, {}, [](const Tensor& t) {
    tanh_(t);
    return [y = SavedTensor(t, "tanh_")](const Variable& dy, const BackwardContext& context) {
      return Gradients{mul(dy, sub(1, square(context.output(0, y.unpack()))))};
    };
  });
}

void sigmoid_(const Variable& x) {
  record_in_place("sigmoid_", x, {}, [](const Tensor& t) {
    sigmoid_(t);
    return [y = SavedTensor(t, "sigmoid_")](const Variable& dy, const BackwardContext& context) {
      const Variable result = context.output(0, y.unpack());
      return Gradients{mul(dy, mul(result, sub(1, result)))};
    };
  });
}

void relu_(const Variable& x) {
  record_in_place("relu_", x, {}, [](const Tensor& t) {
    relu_(t);
    return [y = SavedTensor(t, "relu_")](const Variable& dy, const BackwardContext&) {
      return Gradients{where(le(y.unpack(), 0), 0, dy)};
    };
  });
}

void clamp_(const Variable& x, double low, double high) {
  record_in_place("clamp_", x, {}, [&](const Tensor& t) {
    const Tensor inside = logical_and(ge(t, low), le(t, high));
    clamp_(t, detail::clamp_bound(low, t.dtype()), detail::clamp_bound(high, t.dtype()));
    return [inside = SavedTensor(inside, "clamp_")](const Variable& dy, const BackwardContext&) {
      return Gradients{where(inside.unpack(), dy, 0)};
    };
  });
}

void clamp_min_(const Variable& x, double low) {
  record_in_place("clamp_min_", x, {}, [&](const Tensor& t) {
    const Tensor inside = ge(t, low);
    clamp_min_(t, detail::clamp_bound(low, t.dtype()));
    return
        [inside = SavedTensor(inside, "clamp_min_")](const Variable& dy, const BackwardContext&) {
          return Gradients{where(inside.unpack(), dy, 0)};
        };
  });
}

void clamp_max_(const Variable& x, double high) {
  record_in_place("clamp_max_", x, {}, [&](const Tensor& t) {
    const Tensor inside = le(t, high);
    clamp_max_(t, detail::clamp_bound(high, t.dtype()));
    return
        [inside = SavedTensor(inside, "clamp_max_")](const Variable& dy, const BackwardContext&) {
          return Gradients{where(inside.unpack(), dy, 0)};
        };
  });
}

void masked_fill_(const Variable& x, const Tensor& mask, double value) {
  record_in_place("masked_fill_", x, {}, [&](const Tensor& t) {
    const bool is_condition = mask.dtype() == DType::kBool || mask.dtype() == DType::kU8;
    masked_fill_(t, is_condition ? mask : ne(mask, 0), value);
    return [mask = SavedTensor(mask, "masked_fill_")](const Variable& dy, const BackwardContext&) {
      return Gradients{where(mask.unpack(), 0, dy)};
    };
  });
}

namespace {

// Writes `result`, which was computed from x, over x. The gradient goes through the result's history.
void replace(const char* name, const Variable& x, const Variable& result) {
  TESSERA_CHECK(result.shape() == x.shape(), name,
                "the result has shape {}, which does not fit the tensor that is written, of shape "
                "{}",
                result.shape().str(), x.shape().str());
  record_in_place(name, x, {result}, [&](const Tensor& t) {
    copy_(t, result.tensor());
    return [](const Variable& dy, const BackwardContext&) { return Gradients{Variable(), dy}; };
  });
}

}  // namespace

void masked_scatter_(const Variable& x, const Tensor& mask, const Variable& source) {
  replace("masked_scatter_", x, masked_scatter(x, mask, source));
}

void scatter_(const Variable& x, int dim, const Tensor& index, const Variable& src) {
  replace("scatter_", x, scatter(x, dim, index, src));
}

void scatter_add_(const Variable& x, int dim, const Tensor& index, const Variable& src) {
  replace("scatter_add_", x, scatter_add(x, dim, index, src));
}

void index_add_(const Variable& x, int dim, const Tensor& index, const Variable& src,
                const IndexAddOptions& options) {
  replace("index_add_", x, index_add(x, dim, index, src, options));
}

void index_copy_(const Variable& x, int dim, const Tensor& index, const Variable& src) {
  replace("index_copy_", x, index_copy(x, dim, index, src));
}

void index_fill_(const Variable& x, int dim, const Tensor& index, double value) {
  replace("index_fill_", x, index_fill(x, dim, index, value));
}

void index_put_(const Variable& x, const std::vector<Tensor>& indices, const Variable& values,
                const IndexPutOptions& options) {
  replace("index_put_", x, index_put(x, indices, values, options));
}

void copy_(const Variable& x, const Variable& source) {
  TESSERA_CHECK(x.shape() == source.shape(), "copy_", "shapes {} and {} differ; they must be equal",
                x.shape().str(), source.shape().str());
  if (source.same_as(x)) return;
  record_in_place("copy_", x, {source}, [&](const Tensor& t) {
    copy_(t, source.tensor());
    return [from = Like(source)](const Variable& dy, const BackwardContext& context) {
      return Gradients{Variable(), context.needs(1) ? from.fit(dy) : Variable()};
    };
  });
}

void fill_(const Variable& x, double value) {
  record_in_place("fill_", x, {}, [value](const Tensor& t) {
    fill_(t, value);
    return [](const Variable&, const BackwardContext&) { return Gradients(1); };
  });
}

void zero_(const Variable& x) { fill_(x, 0); }

}  // namespace tessera
