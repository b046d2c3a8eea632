// The page at /: a chat and a panel that shows what the server does. One HTML document without
// outside resources, made of the files in page/ by cmake/embed_page.cmake. Threads: any.
#pragma once

#include <string>
#include <string_view>

#include "api/http_message.h"

namespace tandem::api {

extern const std::string_view kPageHtml;

// The value of Content-Security-Policy for `html`: nothing may run or style it but its own <script>
// and <style> elements, which are named by their SHA-256; it talks to its own server only, and no
// text can become HTML or code (Trusted Types without a policy).
[[nodiscard]] std::string content_security_policy(std::string_view html);

[[nodiscard]] HttpResponse page_response();

}  // namespace tandem::api
