// Python's text formatting: str.format() and the % operator. What the fields of a format reach of
// its arguments is what expressions reach. Charges `work` for padding.
#pragma once

#include <string>
#include <string_view>

#include "jinja/value.h"

namespace tandem::jinja {

// format(value, spec): [[fill]align][sign][#][0][width][,][.precision][type].
std::string format_value(const Value& value, std::string_view spec, Work& work);
// text.format(*positional, **named) with {}, {0}, {name}, {0.role[key]}, {0!r} and {:spec}, whose
// spec may hold fields, too.
std::string format_text(Interpreter& interpreter, std::string_view text,
                        const Arguments& arguments);

}  // namespace tandem::jinja
