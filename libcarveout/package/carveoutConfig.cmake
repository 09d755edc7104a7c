# find_package(carveout): carveout::carveout (shared) and carveout::static. What the latter needs
# besides (libdrm) is the linker's to find.
include(${CMAKE_CURRENT_LIST_DIR}/carveoutTargets.cmake)
