// Boost.Asio's own code for TLS, compiled once here instead of in every file that includes it.
#include <boost/asio/ssl/impl/src.hpp>
