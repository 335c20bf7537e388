// A shared library that does nothing: only its name matters (unseen_holders_test.cc).
extern "C" int weir_test_library() { return 1; }
