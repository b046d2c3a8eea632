// libcurl, loaded when it is first needed: with the thirty libraries that it brings it takes more
// time to load than all the rest of the program, and most commands make no requests. Threads: any.
#pragma once

#include <curl/curl.h>

namespace tandem::hub {

// The functions of libcurl that the hub calls. A name here lacks the "curl_" of libcurl's name.
#define TANDEM_LIBCURL_FUNCTIONS(function) \
  function(global_init);                   \
  function(version_info);                  \
  function(free);                          \
  function(slist_append);                  \
  function(slist_free_all);                \
  function(easy_init);                     \
  function(easy_reset);                    \
  function(easy_setopt);                   \
  function(easy_strerror);                 \
  function(easy_cleanup);                  \
  function(multi_init);                    \
  function(multi_add_handle);              \
  function(multi_remove_handle);           \
  function(multi_perform);                 \
  function(multi_poll);                    \
  function(multi_info_read);               \
  function(multi_strerror);                \
  function(multi_cleanup);                 \
  function(url);                           \
  function(url_get);                       \
  function(url_set);                       \
  function(url_cleanup)

struct Libcurl {
#define TANDEM_LIBCURL_MEMBER(name) decltype(&::curl_##name) name = nullptr
  TANDEM_LIBCURL_FUNCTIONS(TANDEM_LIBCURL_MEMBER);
#undef TANDEM_LIBCURL_MEMBER
};

// The functions, ready for use. libcurl stays loaded to the process's end. If it cannot be loaded
// the program is stopped; require_libcurl (http.h) returns an error instead.
const Libcurl& libcurl();

}  // namespace tandem::hub
