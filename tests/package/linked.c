/* Links the library. */
#include "consumer.h"

int main(void) {
  const struct calls call = {carveout_open,     carveout_get_info,       carveout_close,
                             carveout_watch_fd, carveout_is_lender_gone, carveout_status_name};
  return consume(&call);
}
