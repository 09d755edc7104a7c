#pragma once

namespace carveout::probe {

enum Exit { kDone = 0, kFailed = 1, kUsage = 2, kRefused = 3, kWaived = 77 };

}  // namespace carveout::probe
