/* first.c: a block of device memory from Weir, and back. */
#include <stdio.h>
#include <weir/weir.h>

int main(void) {
  float host[256] = {3.5f};
  float* device = weir_malloc(sizeof(host));
  if (device == NULL || weir_memcpy(device, host, sizeof(host)) != WEIR_OK) {
    fprintf(stderr, "%s\n", weir_last_error());
    return 1;
  }
  printf("%zu bytes may be used\n", weir_usable_size(device));
  return weir_free(device);
}
