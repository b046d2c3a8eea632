// A program's manual page, for man(1): its commands with their options, defaults and values, as
// the help has them. Threads: any.
#pragma once

#include <string>
#include <vector>

#include "cli/outline.h"

namespace tandem::cli {

// A section that the outline does not know. Lines of `text` that begin with two spaces are shown as
// they are; others are joined to paragraphs, which empty lines end.
struct ManualSection {
  std::string title;
  std::string text;
};

// In the man macros of roff. `version` is in the footer.
std::string manual_page(const CommandOutline& program, const std::string& version,
                        const std::vector<ManualSection>& more);

}  // namespace tandem::cli
