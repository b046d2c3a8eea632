// How help is written: options in groups, the kind of value and the default beside the flag, and
// descriptions wrapped to the width of a page.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tandem {

class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
};

// Puts the options that have no group of their own yet into `group`.
void group_new_options(CLI::App& command, const std::string& group);

}  // namespace tandem
