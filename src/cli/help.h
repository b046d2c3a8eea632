// How help is written: options in groups, the kind of value and the default beside the flag, and
// descriptions wrapped to the width of a page. Only for the files of this folder.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tandem::cli {

// The values of an option that takes one of some; empty: it takes others too.
std::vector<std::string> choices_of(const CLI::Option& option);
// Whether its value is a number.
bool takes_number(const CLI::Option& option);

class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
};

}  // namespace tandem::cli
