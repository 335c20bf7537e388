// Catch2 in either major version, so that tests include one header.
#ifndef WEIR_TESTS_SUPPORT_CATCH_H_
#define WEIR_TESTS_SUPPORT_CATCH_H_

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#endif  // WEIR_TESTS_SUPPORT_CATCH_H_
