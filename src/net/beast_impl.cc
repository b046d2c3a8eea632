// Boost.Beast's own code, compiled once here instead of in every file that includes it.
#include <boost/beast/src.hpp>
