# Read by CPack once for each kind of package: names, versions, and what only Debian has.
include(${CPACK_TANDEM_BUILD}/version.cmake)  # written by the build, so that package and program agree
set(CPACK_PACKAGE_VERSION ${TANDEM_VERSION})

if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  # Libraries differ between releases: the file says for which one it was built, and a later release's counts as newer.
  file(READ /etc/os-release system)
  string(REGEX MATCH "(^|\n)ID=\"?([a-z]+)" match "${system}")
  string(REPLACE "debian" "deb" name "${CMAKE_MATCH_2}")
  string(REGEX MATCH "(^|\n)VERSION_ID=\"?([0-9.]+)" match "${system}")
  string(APPEND name "${CMAKE_MATCH_2}")  # deb12, ubuntu24.04
  set(CPACK_DEBIAN_PACKAGE_VERSION ${TANDEM_VERSION_DEBIAN})
  set(CPACK_DEBIAN_PACKAGE_RELEASE 1~${name})
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SECTION net)
  set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
  set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_DEPENDS "adduser, procps, libcurl4 (>= 7.85) | libcurl4t64")  # postinst; the unit's /bin/kill; a library that the program opens by its name
  set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "ca-certificates")
  set(CPACK_DEBIAN_PACKAGE_CONFLICTS "tandem-mass")  # another program, with the same /usr/bin/tandem
  set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
  set(debian ${CPACK_TANDEM_SOURCE}/packaging/debian)
  set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${debian}/postinst ${debian}/prerm ${debian}/postrm ${debian}/conffiles)
else()
  set(CPACK_PACKAGE_FILE_NAME tandem-serve-${TANDEM_VERSION}-linux-${CMAKE_HOST_SYSTEM_PROCESSOR})
endif()
