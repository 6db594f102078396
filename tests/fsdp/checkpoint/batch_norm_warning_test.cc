// What checkpoint::save prints of batch norms that trained with local batches. It prints once in a process, so
// this is a program of its own.
#include <catch2/catch.hpp>
#include <string>

#include "tessera/fsdp/checkpoint/checkpoint.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/batch_norm.h"
#include "tessera/tests/fsdp/checkpoint/checkpoint_run.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/output.h"

namespace tessera::testing {
namespace {

TESSERA_RANK_TEST_WITH("a checkpoint has rank 0's statistics, and a warning once",
                       "[fsdp][checkpoint]", {.worlds = {3}}) {
  nn::BatchNorm1d norm({.channels = 4});
  fsdp::replicate(norm, {.mesh = t.world().mesh()});
  nn::initialize(norm, {.seed = 1});
  norm(Variable(random_rows(5, 4, DType::kF32, t.rank())));
  const checkpoint::State state{.group = t.world().group(), .model = &norm};
  const std::string parent = shared_folder(t, "batch_norm_warning");
  const auto save = [&] {
    for (int step : {1, 2}) checkpoint::save(checkpoint::step_folder(parent, step), state);
  };
  const std::string warning = "warning: [checkpoint.save] rank 0: 1 batch norm(s), \"\" the first";
  if (t.rank() == 0) {
    const std::string printed = output_of(save);
    const std::size_t at = printed.find(warning);
    t.check(at != std::string::npos && printed.find("warning", at + 1) == std::string::npos,
            "printed: {}", printed);
  } else {
    save();
  }
  const auto mean_of = [&] {
    return nn::state_dict(norm).tensor("running_mean").to_vector<float>();
  };
  const std::vector<float> before = mean_of();
  checkpoint::load(checkpoint::step_folder(parent, 2), state);
  t.check((mean_of() == before) == (t.rank() == 0), "the statistics after the load");
}

}  // namespace
}  // namespace tessera::testing
