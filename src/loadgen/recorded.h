// What a run's record says of how it was called. Results and reports are handed to others, so
// whatever may be a credential is written as "...": keys, values of headers, members of a JSON
// object with such a name, a user and password in an address. Threads: any.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem::loadgen {

// The arguments as a line for a shell, without credentials.
std::string recorded_command(const std::vector<std::string>& arguments);

// The value of the flag of this name ("extra-body", without dashes), without credentials.
std::string recorded_value(std::string_view flag, std::string_view value);

// The text without the credentials of `headers` (whole lines), wherever they stand in it: servers
// repeat them in messages. Of headers with such a name only; what follows a scheme ("Bearer")
// alone, too.
std::string without_secrets(std::string text, std::string_view headers);

// "http://...@host/path" of an address with a user; any other text as it is.
std::string without_user(std::string_view url);

}  // namespace tandem::loadgen
