// The page of a training: curves and tables of one run or several, one file that needs nothing
// else, no script either, in light and dark, on a desk and on a phone.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace octavo {

// `data` is an object; what is not there has no section:
//   title, kicker, lede    texts at the top
//   conditions             after the headline, such as "one seed"
//   interrupted            true: a banner says that runs are not complete
//   loss_unit              of losses, such as "nats per byte"
//   steps, ranks           numbers
//   configuration          [[name, value]]
//   memory_parts           names of the bytes in "memory"
//   corpus, prompt         of a language model: samples/train_gpt/report
//   runs                   one object a run:
//     name, backend, recipe, report, sample     texts
//     step, loss                                 arrays of one length; null: none in this step
//     validation                                 [[step, loss]]
//     train_loss, validation_loss, tokens_per_s  numbers or null
//     skipped_steps, nonfinite_steps, injected   numbers
//     amax, scale, reduce                        {"x/layer": [one number or null a step]}
//     others                                     {name: [[step, value]]}
//     casts                                      {step: [], operands: {x: {...}}}, its worst ratios
//     memory, bytes, placements                  see sections.cpp
std::string run_page(const nlohmann::json &data);

// Whether a file whose first 4 KiB are `begin` is such a page.
bool is_run_page(std::string_view begin);

}  // namespace octavo
