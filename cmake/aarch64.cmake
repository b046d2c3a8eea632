# Toolchain: compile for 64-bit Arm Linux with Debian's cross compiler and run the tests under qemu-user. The Arm libraries lie in
# TANDEM_AARCH64_ROOT, a plain folder that scripts/test_aarch64.sh fills; nothing is installed on the machine itself.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TANDEM_AARCH64_ROOT)

set(CMAKE_FIND_ROOT_PATH ${TANDEM_AARCH64_ROOT} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${TANDEM_AARCH64_ROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${TANDEM_AARCH64_ROOT}/usr/lib/aarch64-linux-gnu/pkgconfig)

set(TANDEM_AARCH64_LIBRARIES ${TANDEM_AARCH64_ROOT}/usr/lib/aarch64-linux-gnu)
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${TANDEM_AARCH64_LIBRARIES}")
set(CMAKE_CROSSCOMPILING_EMULATOR
    qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=${TANDEM_AARCH64_LIBRARIES}:/usr/aarch64-linux-gnu/lib)
