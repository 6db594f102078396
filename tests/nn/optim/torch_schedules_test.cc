// Schedules give the learning rates that PyTorch's schedulers give.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tessera/nn/optim/schedule.h"
#include "tessera/tests/nn/optim/support.h"

namespace tessera {
namespace {

using namespace nn::optim;
using namespace testing;

// `expected`: the learning rates of steps 0, 1, ... that PyTorch 2.15 gives with `scheduler` of
// torch.optim.lr_scheduler, where `o` is an SGD with lr = 1.
void check(const std::string& scheduler, const Schedule& schedule,
           const std::vector<double>& expected) {
  INFO(scheduler);
  std::vector<double> factors;
  for (std::size_t step = 0; step < expected.size(); ++step) {
    factors.push_back(schedule(static_cast<std::int64_t>(step)));
  }
  CHECK(distance(factors, expected) <= 1e-14);
}

TEST_CASE("schedules of PyTorch: steps, powers and cosines") {
  check("MultiStepLR(o, [3, 5, 5, 9], 0.3)", multi_step({.milestones = {3, 5, 5, 9}, .gamma = 0.3}),
        {1, 1, 1, 0.3, 0.3, 0.027, 0.027, 0.027, 0.027, 0.0081, 0.0081, 0.0081});
  check("MultiStepLR(o, [0, 2], 1.5)", multi_step({.milestones = {0, 2}, .gamma = 1.5}),
        {1.5, 1.5, 2.25, 2.25});
  check("MultiStepLR(o, [1])", multi_step({.milestones = {1}}), {1, 0.1, 0.1});
  check("ExponentialLR(o, 0.87)", exponential({.gamma = 0.87}),
        {1, 0.87, 0.7569, 0.6585030000000001, 0.5728976100000001, 0.49842092070000005,
         0.433626201009});
  check("PolynomialLR(o, 7)", polynomial({.steps = 7}),
        {1, 0.8571428571428572, 0.7142857142857143, 0.5714285714285714, 0.4285714285714286,
         0.2857142857142857, 0.1428571428571429, 0, 0, 0});
  check("PolynomialLR(o, 7, 2.5)", polynomial({.steps = 7, .power = 2.5}),
        {1, 0.6801943590165686, 0.4312011503716921, 0.2468339415570463, 0.12024251094636317,
         0.043634488475497855, 0.007713560673657707, 0, 0, 0});
  check("PolynomialLR(o, 1, 0.5)", polynomial({.steps = 1, .power = 0.5}), {1, 0, 0});
  check("CosineAnnealingWarmRestarts(o, 5, 1, 0.1)", cosine_restarts({.steps = 5, .to = 0.1}),
        {1, 0.9140576474687263, 0.6890576474687263, 0.41094235253127376, 0.18594235253127372, 1,
         0.9140576474687263, 0.6890576474687263, 0.41094235253127376, 0.18594235253127372, 1,
         0.9140576474687263, 0.6890576474687263});
  check("CosineAnnealingWarmRestarts(o, 3, 2)", cosine_restarts({.steps = 3, .multiply = 2}),
        {1, 0.75, 0.2500000000000001, 1, 0.9330127018922194, 0.75, 0.5, 0.2500000000000001,
         0.06698729810778065, 1, 0.9829629131445341, 0.9330127018922194, 0.8535533905932737});
  check("CosineAnnealingWarmRestarts(o, 1, 3, 0.2)",
        cosine_restarts({.steps = 1, .multiply = 3, .to = 0.2}),
        {1, 1, 0.8, 0.40000000000000013, 1, 0.9758770483143635, 0.9064177772475912, 0.8,
         0.6694592710667722, 0.5305407289332279, 0.40000000000000013, 0.29358222275240886,
         0.22412295168563667, 1, 0.9972953430967773});
}

TEST_CASE("schedules of PyTorch: one cycle") {
  check("OneCycleLR(o, 1, total_steps=11)", one_cycle({.steps = 11}),
        {0.040000000000000036, 0.4223411137347358, 0.9602614247226174, 0.9797465678213015,
         0.8844757247686303, 0.7260870492975283, 0.5305827080875998, 0.3300580289872949,
         0.15743251279950787, 0.041045543206290856, 4e-06});
  check(
      "OneCycleLR(o, 1, total_steps=11, pct_start=0.25, anneal_strategy='linear', div_factor=7, "
      "final_div_factor=50)",
      one_cycle({.steps = 11,
                 .pct_start = 0.25,
                 .anneal_strategy = AnnealStrategy::kLinear,
                 .div_factor = 7,
                 .final_div_factor = 50}),
      {0.14285714285714285, 0.6326530612244898, 0.9697835497835497, 0.848917748917749,
       0.7280519480519481, 0.6071861471861473, 0.4863203463203464, 0.3654545454545455,
       0.24458874458874458, 0.12372294372294379, 0.0028571428571428914});
  check("OneCycleLR(o, 1, total_steps=6, pct_start=0.0)", one_cycle({.steps = 6, .pct_start = 0}),
        {0.9330129698414118, 0.750001, 0.500002, 0.2500030000000001, 0.06699103015858822, 4e-06});
  check("OneCycleLR(o, 1, total_steps=6, pct_start=1.0)", one_cycle({.steps = 6, .pct_start = 1}),
        {0.040000000000000036, 0.1316718427000253, 0.3716718427000253, 0.6683281572999747,
         0.9083281572999747, 1});
  check("OneCycleLR(o, 1, total_steps=1)", one_cycle({.steps = 1}), {4e-06});
  check("OneCycleLR(o, 1, total_steps=13, pct_start=0.4, three_phase=True)",
        one_cycle({.steps = 13, .pct_start = 0.4, .three_phase = true}),
        {0.040000000000000036, 0.16813510152168343, 0.4841295550785163, 0.819275104892192,
         0.9946387965880616, 0.9165946116716776, 0.6268100482990311, 0.2800000000000001,
         0.061325053222652526, 0.03732077602488121, 0.02347461625698328, 0.0071475333814885866,
         4e-06});
  check(
      "OneCycleLR(o, 1, total_steps=9, pct_start=0.5, anneal_strategy='linear', div_factor=4, "
      "final_div_factor=5, three_phase=True)",
      one_cycle({.steps = 9,
                 .pct_start = 0.5,
                 .anneal_strategy = AnnealStrategy::kLinear,
                 .div_factor = 4,
                 .final_div_factor = 5,
                 .three_phase = true}),
      {0.25, 0.4642857142857143, 0.6785714285714286, 0.8928571428571428, 0.8928571428571429,
       0.6785714285714286, 0.4642857142857143, 0.25, 0.04999999999999999});
  check("OneCycleLR(o, 1, total_steps=5, pct_start=0.0, three_phase=True)",
        one_cycle({.steps = 5, .pct_start = 0, .three_phase = true}),
        {0.030001000000000003, 0.020002000000000002, 0.010003000000000007, 0.002683223975118795,
         4e-06});
}

}  // namespace
}  // namespace tessera
