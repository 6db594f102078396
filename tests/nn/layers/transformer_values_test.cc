// Transformer layers and stacks against PyTorch.
//
// The numbers are from torch.nn of PyTorch 2.15 in f64, without dropout: the n-th parameter is
// 0.3 sin(0.7 i + n), inputs are sin(0.7 i + k), gradients those of sum(y cos(0.3 i)), each summed
// with weights cos(0.3 i).
#include <catch2/catch.hpp>

#include "tessera/tests/nn/layers/formulas.h"
#include "tessera/tests/nn/layers/transformers.h"
#include "tessera/tests/nn/support.h"

namespace tessera::testing {
namespace {

using nn::TransformerDecoderMasks;
using nn::TransformerMask;

std::vector<double> weighed_grad(const Variable& x) {
  return {weigh(Variable(x.grad())).item<double>()};
}

TEST_CASE("an encoder layer gives PyTorch's numbers, norms last") {
  nn::TransformerEncoderLayer layer(
      {.dim = 6, .heads = 2, .feedforward = 5, .dropout = 0, .dtype = DType::kF64});
  fill_with_waves(layer);
  const Variable x = wave_input({2, 3, 6}, 0.2);
  const Variable y =
      layer(x, TransformerMask{.mask = waves({3, 3}, 0.3), .key_padding_mask = padding()});
  check_close(values(y.tensor()),
              {-0.564797924247698, -0.278726432598374, -0.007822302860026, 0.359997755813557,
               0.231655694504584,  0.43309056602896,   -0.544335343053579, -0.27544901054652,
               -0.275384871033346, 0.157978746852365,  0.184004967161695,  0.03645599150485,
               -0.650449076935556, -0.25223951727215,  0.043781897298291,  0.209658383842827,
               0.237284455163227,  0.085627837176167,  -0.570648203121778, -0.29188562646585,
               -0.004247075812733, 0.363925212873522,  0.236656979732688,  0.406172702532489,
               -0.541366532349042, -0.277388649569578, -0.279837306195609, 0.157050258966008,
               0.183826612899218,  0.034279287208094,  -0.643068752679798, -0.256571333282832,
               0.038265098256617,  0.188921864358061,  0.242594735553238,  0.032563821235798});
  backward(weigh(y));
  check_close(weighed_gradients(layer),
              {-0.025878171961751, 0.176271958430756, 0.210206885759462, -0.176114057894931,
               0.429242115000128, -0.206134275454117, 0.392329123097381, -0.80441161935854,
               -2.540062613705827, -0.629884683449236, -1.323290866590398, -0.936864098551799},
              1e-11);
  check_close(weighed_grad(x), {0.138108111839583}, 1e-11);
}

TEST_CASE("an encoder layer gives PyTorch's numbers: norms first, gelu, no bias, sequence first") {
  nn::TransformerEncoderLayer layer({.dim = 6,
                                     .heads = 3,
                                     .feedforward = 5,
                                     .dropout = 0,
                                     .activation = ActivationKind::kGelu,
                                     .batch_first = false,
                                     .norm_first = true,
                                     .bias = false,
                                     .dtype = DType::kF64});
  fill_with_waves(layer);
  const Variable x = wave_input({3, 2, 6}, 0.2);
  const Variable y = layer(x, TransformerMask{.is_causal = true});
  check_close(values(y.tensor()),
              {0.155922937664927,  0.815998230962561,  1.007941579573117,  0.708118901484096,
               0.165787830165719,  -0.512575638088141, -0.935919836092575, -0.942992342537847,
               -0.464190324875702, 0.230707070824208,  0.780944183543633,  0.991451212287084,
               0.717754318298555,  0.142105210375877,  -0.54839773834535,  -0.965067039434783,
               -0.912200255202668, -0.442801001586651, 0.219019787244717,  0.812366506528196,
               0.999876166040815,  0.715646249297085,  0.109304638651932,  -0.548580485416397,
               -0.968124320051363, -0.908656989646005, -0.432370155582311, 0.240542772299699,
               0.821582400034366,  0.992045956478453,  0.705896276960385,  0.097989472896631,
               -0.577322697292269, -0.962592539521503, -0.908891896169356, -0.414116311281126});
  backward(weigh(y));
  check_close(weighed_gradients(layer),
              {-0.068195447874502, -0.091587066199942, 0.094931224372345, 0.057571505203785,
               0.083458189937905, -0.057578382135061},
              1e-11);
  check_close(weighed_grad(x), {18.797185237074146}, 1e-11);
}

TEST_CASE("a decoder layer gives PyTorch's numbers, norms last and first") {
  const std::vector<double> outputs[] = {
      {-0.151520741669135, -0.531396938667688, -0.102966970551872, -0.058755820362571,
       -0.160666166735795, -0.228421824104362, -0.245182608785854, -0.186081924768594,
       -0.261996238498769, 0.104118090384812, -0.403597263972091, -0.108199377164912,
       -0.148671625746913, -0.523451723655221, -0.129877039675615, -0.053494649198702},
      {-0.157119750032578, 0.844735178763183, 0.939168255620078, 0.562058383540522,
       0.053775636246275, -0.784904657511187, -0.684928921280535, -1.412030718662612,
       -0.667137728532409, 0.111625809470555, 0.882183865410084, 0.688939166025789,
       0.504728698950179, 0.033353009507682, -0.442667765225513, -1.291088340290282}};
  const std::vector<double> gradients[] = {
      {-0.057709674195418, -0.015492950665292, 0.124236763763187, -0.009946975127201,
       -0.101034600849525, 1.222758802664984, 0.649557349229803, -0.19337261697189,
       -0.038347096084162, 0.243942211027173, -0.115199890240678, -0.084651426593307,
       2.978269906506624, -0.194584895820861, 0.669409183032146, 0.007164628682169,
       -0.572673877482226, -2.249074807684509},
      {0.112791614231795, -0.452131638473748, 0.969424898238777, -2.253937030888383,
       0.115592375046965, 0.199465229657358, -0.224970798268698, -2.254064196651724,
       -0.110554641864484, 0.26089727089042, 0.115372706559663, -2.249074807684509,
       -0.017484144065649, -0.029006524617464, -0.00532597387614, 0.001598146491393,
       -0.060788678847443, -0.047894743240976}};
  const std::vector<double> tgt[] = {{0.057528676413179}, {8.354969932917879}};
  const std::vector<double> memory[] = {{0.099112105554466}, {0.026864501917265}};
  for (const bool norm_first : {false, true}) {
    nn::TransformerDecoderLayer layer(small(norm_first));
    fill_with_waves(layer);
    const Variable t = wave_input({2, 2, 4}, 0.2), m = wave_input({2, 3, 4}, 0.5);
    const TransformerDecoderMasks masks{
        .tgt = {.mask = bools({false, true, false, false}, {2, 2})},
        .memory = {.mask = bools({false, true, false, true, false, false}, {2, 3}),
                   .key_padding_mask = padding()}};
    const Variable y = layer(t, m, masks);
    check_close(values(y.tensor()), outputs[norm_first], 1e-11);
    backward(weigh(y));
    check_close(weighed_gradients(layer), gradients[norm_first], 1e-11);
    check_close(weighed_grad(t), tgt[norm_first], 1e-11);
    check_close(weighed_grad(m), memory[norm_first], 1e-11);
  }
}

// Of the encoder-decoder with norms last.
const std::vector<double> kModelGradients = {0.014133200164644,
                                             0.019570395584356,
                                             -0.005126824929929,
                                             0.003408710666577,
                                             -0.03620653020546,
                                             -0.033544931217653,
                                             -0.012552023334832,
                                             0.009401264661298,
                                             0.121297630894757,
                                             0.036308103292311,
                                             0.050864350736558,
                                             -0.020769759044097,
                                             0.035890873185415,
                                             -0.040690820109328,
                                             0.057969714471375,
                                             -0.013997742004868,
                                             0.005853780920594,
                                             0.010492535624905,
                                             0.002965467207114,
                                             -0.039121723662416,
                                             0.115642442468576,
                                             -0.043787094478712,
                                             -0.182651946097368,
                                             0.051759764477045,
                                             0.286489269600548,
                                             -0.799343319617367,
                                             -0.16587141072418,
                                             0.06936172036227,
                                             -0.129562798429289,
                                             0.049527254048165,
                                             0.701714917712527,
                                             -1.006984137210338,
                                             -0.010476857510213,
                                             0.068479369070884,
                                             0.0,
                                             0.0,
                                             0.0,
                                             0.260840031826456,
                                             -1.882408804902587,
                                             0.068469024393216,
                                             1.980725059462332,
                                             0.260840031826456,
                                             3.511347700408582,
                                             -1.840231073133141,
                                             0.331433397693306,
                                             -3.06568692763579,
                                             -4.451735481269924,
                                             -0.918446763296692,
                                             0.955042930624974,
                                             -0.675482175304721,
                                             4.195738139311938,
                                             -0.869045780550939,
                                             0.678343128452062,
                                             3.99939956078246,
                                             -1.012289161341307,
                                             -0.414238158822463,
                                             2.556253500958536,
                                             -0.869251143559553,
                                             9.370546053088944,
                                             1.044727633463493,
                                             -6.299974582767598,
                                             1.269348191928032,
                                             -0.25866968357973,
                                             -2.249074807684509};

TEST_CASE("an encoder-decoder gives PyTorch's numbers, norms last") {
  nn::Transformer model({.layer = small(false), .encoder_layers = 2, .decoder_layers = 2});
  fill_with_waves(model);
  const Variable src = wave_input({2, 3, 4}, 0.5), tgt = wave_input({2, 2, 4}, 0.2);
  const Variable y = model(src, tgt, padded_and_causal());
  check_close(values(y.tensor()),
              {0.043705171763561, 0.176574892525247, 0.059797911458129, 0.267493646482919,
               0.141027553448683, 0.210064729416736, 0.510613930773848, -0.163432145796313,
               0.088286108317267, 0.168576711826618, 0.09480560838028, 0.204888407462578,
               0.159210416108588, 0.176272246195545, 0.376447516297947, -0.147288165397775});
  backward(weigh(y));
  check_close(weighed_gradients(model), kModelGradients, 1e-11);
  check_close(weighed_grad(src), {0.014950565706461}, 1e-11);
  check_close(weighed_grad(tgt), {0.006854141390389}, 1e-11);
}

TEST_CASE("an encoder-decoder gives PyTorch's numbers, norms and sequence first") {
  nn::Transformer model({.layer = small(true, false), .encoder_layers = 2, .decoder_layers = 2});
  fill_with_waves(model);
  const Variable src = wave_input({3, 2, 4}, 0.5), tgt = wave_input({2, 2, 4}, 0.2);
  const Variable y = model(src, tgt, padded_and_causal());
  check_close(values(y.tensor()),
              {0.364387200358456, 0.213343962892788, 0.513304536742459, 0.144041851304199,
               -0.228637460965524, 0.226730566842564, 0.336227377635418, -0.21043534268831,
               0.396713269383387, 0.233679964982003, 0.476654606525563, 0.398454246725522,
               -0.189117202538666, 0.213055814001266, 0.323631913112289, -0.236341520357019});
  backward(weigh(y));
  check_close(weighed_grad(src), {-0.001777730871139}, 1e-11);
  check_close(weighed_grad(tgt), {-0.156418398450732}, 1e-11);
}

}  // namespace
}  // namespace tessera::testing
