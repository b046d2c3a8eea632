// Text in URLs (RFC 3986) as it is meant: "%2F" stands for "/". What is no whole escape stays as it
// is. The bytes that come out are not checked for being UTF-8. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

// Of a path: "a%2Fb" is "a/b".
[[nodiscard]] std::string percent_decode(std::string_view text);
// Of a value in a query, where '+' stands for a space: "a+b%2B" is "a b+".
[[nodiscard]] std::string query_decode(std::string_view text);

}  // namespace tandem
