// Python's text formatting: str.format() and the % operator, without attribute access inside the
// format text (a sandbox's way out that no chat template uses). Charges `work` for padding.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace tandem::text::jinja {

// format(value, spec): [[fill]align][sign][#][0][width][,][.precision][type].
std::string format_value(const Value& value, std::string_view spec, Work& work);
// text.format(*positional, **named) with {}, {0}, {name}, {0!r} and {:spec}.
std::string format_text(std::string_view text, const Arguments& arguments, Work& work);

}  // namespace tandem::text::jinja
