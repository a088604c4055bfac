// The models of the staircase family, in the order in which lists show them.
#include <vector>

#include "models/model.h"
#include "models/staircase/feedback.h"
#include "models/staircase/lstm.h"
#include "models/staircase/staircase.h"
#include "models/staircase/xl.h"

namespace eddy::staircase {

std::vector<ListedModel<Keys>> models() {
  return {
      listed<Staircase>("staircase", "a window of chunks, each advanced by one pass per step",
                        {ExampleOf::recurrence}),
      listed<Staircase>("cached_staircase", "the same with chunks frozen after some passes"),
      listed<StaircaseXl>("ladder", "the stack applied several times to a whole segment"),
      listed<StaircaseXl>("transformer_xl", "a segment at a time, with the inputs of each layer remembered"),
      listed<StaircaseFeedback>("feedback", "token by token, all layers attending to one mixed memory"),
      listed<StaircaseXl>("universal", "one layer applied several times"),
      listed<StaircaseLstm>("lstm", "a stack of LSTM layers"),
  };
}

}  // namespace eddy::staircase
