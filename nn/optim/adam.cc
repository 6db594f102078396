#include "tessera/nn/optim/adam.h"

#include <type_traits>
#include <utility>

#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/ops/optim.h"
#include "tessera/tensor/thread_state.h"

namespace tessera::nn::optim {

template <class Options>
void AdamFamily<Options>::check_options(const Options& options) const {
  const std::string where = "nn.optim." + this->type_name();
  TESSERA_CHECK(options.lr >= 0, where, "lr is {}; give one that is at least 0", options.lr);
  for (double beta : options.betas) {
    TESSERA_CHECK(beta >= 0 && beta < 1, where, "betas are {} and {}; they lie in [0, 1)",
                  options.betas[0], options.betas[1]);
  }
  TESSERA_CHECK(options.eps >= 0, where, "eps is {}; it is at least 0", options.eps);
  TESSERA_CHECK(options.weight_decay >= 0, where, "weight_decay is {}; it is at least 0",
                options.weight_decay);
}

template <class Options>
OptionList AdamFamily<Options>::list_options(Options& options) const {
  return {{"lr", &options.lr},
          {"beta1", &options.betas[0]},
          {"beta2", &options.betas[1]},
          {"eps", &options.eps},
          {"weight_decay", &options.weight_decay},
          {"amsgrad", &options.amsgrad},
          {"maximize", &options.maximize}};
}

template <class Options>
std::vector<std::string> AdamFamily<Options>::state_names(const Options& options) const {
  if (options.amsgrad) return {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
  return {"exp_avg", "exp_avg_sq"};
}

template <class Options>
void AdamFamily<Options>::update(const std::vector<Parameter>& parameters) {
  const auto state = [this](const Parameter& parameter, const char* name) {
    const auto [tensor, is_new] = this->state_for_update(parameter, name);
    if (is_new) zero_(tensor);
    return tensor;
  };
  // A CUDA graph would write to the copy's memory also after that was released.
  const bool is_captured = tessera::detail::thread_state().capture != nullptr;
  const auto copy_of = [is_captured](const Parameter& parameter) {
    return is_captured ? Tensor() : parameter.cast_copy();
  };
  std::vector<AdamSegment> segments;
  for (const Parameter& parameter : parameters) {
    const Options& options = this->options_for(parameter);
    segments.push_back(
        {.parameter = parameter.local().tensor(),
         .gradient = contiguous(parameter.grad()),
         .exp_avg = state(parameter, "exp_avg"),
         .exp_avg_sq = state(parameter, "exp_avg_sq"),
         .max_exp_avg_sq = options.amsgrad ? state(parameter, "max_exp_avg_sq") : Tensor(),
         .copy = copy_of(parameter),
         .lr = options.lr,
         .beta1 = options.betas[0],
         .beta2 = options.betas[1],
         .eps = options.eps,
         .weight_decay = options.weight_decay,
         .step = this->steps(parameter) + 1,
         .decoupled_decay = std::is_same_v<Options, AdamWOptions>,
         .maximize = options.maximize});
  }
  step_by_kind(segments, [&](const std::vector<AdamSegment>& part) {
    adam_step(part, this->gradient_scale());
  });
  for (const Parameter& parameter : parameters) {
    if (copy_of(parameter).defined()) parameter.note_cast_copy();
  }
}

template class AdamFamily<AdamOptions>;
template class AdamFamily<AdamWOptions>;

Adam::Adam(const std::vector<Parameter>& parameters, const AdamOptions& options)
    : Adam(std::vector<Group>{{.parameters = parameters, .options = options}}) {}

Adam::Adam(std::vector<Group> groups) { add_groups(std::move(groups)); }

AdamW::AdamW(const std::vector<Parameter>& parameters, const AdamWOptions& options)
    : AdamW(std::vector<Group>{{.parameters = parameters, .options = options}}) {}

AdamW::AdamW(std::vector<Group> groups) { add_groups(std::move(groups)); }

}  // namespace tessera::nn::optim
