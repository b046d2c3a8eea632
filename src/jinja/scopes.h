// Decides whose the names of a template are, as jinja2's compiler does: before anything runs, from
// the text alone. Used by the parser.
#pragma once

#include "jinja/ast.h"

namespace tandem::jinja {

// Fills in the `unset` variables of every scope. Fails on a loop that sets `loop`.
void settle_names(SyntaxTree& tree);

}  // namespace tandem::jinja
