/* Linked into a fake plugin: leaves a file behind the moment that any of the library's code runs,
 * also in the helper, which forgets variables that begin with OCTAVO_.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void sing(void) {
  const char *path = getenv("CANARY_OF_A_TEST");
  const int file = path == NULL ? -1 : open(path, O_WRONLY | O_CREAT, 0666);
  if (file >= 0) close(file);
}
