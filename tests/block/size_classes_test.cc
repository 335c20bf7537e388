#include "allocator/block/size_classes.h"

#include "tests/support/catch.h"

namespace weir {

TEST_CASE("every small size gets the smallest class that holds it", "[size_class]") {
  for (uint64_t bytes = 0; bytes <= kMaxSmallBytes; ++bytes) {
    const int size_class = SizeClassOf(bytes);
    REQUIRE(size_class >= 0);
    REQUIRE(size_class < kNumSizeClasses);
    REQUIRE(SizeOfClass(size_class) >= bytes);
    if (size_class > 0) REQUIRE(SizeOfClass(size_class - 1) < std::max<uint64_t>(bytes, 1));
  }
}

TEST_CASE("classes are multiples of 512 and lose at most an eighth above 4 KiB", "[size_class]") {
  REQUIRE(SizeOfClass(kNumSizeClasses - 1) == kMaxSmallBytes);
  for (int c = 0; c < kNumSizeClasses; ++c) {
    REQUIRE(SizeOfClass(c) % 512 == 0);
    if (c > 0 && SizeOfClass(c) > 4 * kKiB) {
      REQUIRE((SizeOfClass(c) - SizeOfClass(c - 1)) * 8 <= SizeOfClass(c - 1));
    }
    REQUIRE(ObjectsPerSpan(c) >= 4);
  }
}

}  // namespace weir
