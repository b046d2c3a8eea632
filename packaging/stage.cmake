# Run by CPack between installation and packing: what a kind of package has beyond `cmake --install`.
include(${CPACK_TANDEM_BUILD}/version.cmake)
set(root ${CPACK_TEMPORARY_INSTALL_DIRECTORY})

# The Debian package: the configuration in /etc, and what policy asks for in /usr/share/doc.
function(tandem_stage_debian)
  file(COPY ${root}/usr/share/tandem/tandem.env ${root}/usr/share/tandem/tandem.yaml DESTINATION ${root}/etc/tandem)
  set(doc ${root}/usr/share/doc/tandem-serve)
  file(COPY ${CPACK_TANDEM_SOURCE}/packaging/debian/copyright DESTINATION ${doc})
  file(RENAME ${doc}/CHANGELOG.md ${doc}/changelog)
  file(WRITE ${doc}/changelog.Debian
       "tandem-serve (${CPACK_DEBIAN_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium\n\n"
       "  * Built from the sources of ${TANDEM_VERSION}; see changelog.gz.\n\n -- ${CPACK_PACKAGE_CONTACT}  ${TANDEM_DATE}\n")
  execute_process(COMMAND gzip -9nf ${doc}/changelog ${doc}/changelog.Debian COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# The archive: every shared library but those of glibc, with their licences, in a folder that only this program searches.
function(tandem_stage_archive)
  set(libraries ${root}/lib/tandem)
  file(MAKE_DIRECTORY ${libraries})
  file(GLOB programs ${root}/bin/tandem ${libraries}/libtandem_*.so)
  # The program opens libcurl by this name when it needs it.
  set(curl ${CPACK_TANDEM_CURL})
  file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${programs} LIBRARIES ${curl} RESOLVED_DEPENDENCIES_VAR found
       POST_EXCLUDE_REGEXES "/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|util|anl|nsl))\\.so[^/]*$")
  foreach(library IN LISTS found curl)
    get_filename_component(name ${library} NAME)
    file(COPY ${library} DESTINATION ${libraries} FOLLOW_SYMLINK_CHAIN)
    file(REAL_PATH ${library} real)
    get_filename_component(real_name ${real} NAME)
    if(NOT name STREQUAL real_name)  # one file with the name that is searched for
      file(REMOVE ${libraries}/${name})
      file(RENAME ${libraries}/${real_name} ${libraries}/${name})
    endif()
    execute_process(COMMAND dpkg-query -S ${library} ${real} OUTPUT_VARIABLE owner ERROR_QUIET)
    if(owner MATCHES "^([^:\n]+):")
      file(COPY_FILE /usr/share/doc/${CMAKE_MATCH_1}/copyright ${root}/share/doc/tandem-serve/licence-of-${CMAKE_MATCH_1})
    endif()
  endforeach()
  file(COPY ${CPACK_TANDEM_SOURCE}/LICENSE DESTINATION ${root}/share/doc/tandem-serve)
  # RPATH, not RUNPATH: the libraries find each other by it, too.
  execute_process(COMMAND patchelf --force-rpath --set-rpath "$ORIGIN/../lib/tandem" ${root}/bin/tandem COMMAND_ERROR_IS_FATAL ANY)
  # It is unpacked anywhere; these are for /usr/local.
  set(TANDEM_PREFIX /usr/local)
  configure_file(${CPACK_TANDEM_SOURCE}/packaging/tandem.service.in ${root}/lib/systemd/system/tandem.service @ONLY)
  configure_file(${CPACK_TANDEM_SOURCE}/packaging/tandem.env.in ${root}/share/tandem/tandem.env @ONLY)
endfunction()

if(CPACK_GENERATOR STREQUAL "DEB")
  tandem_stage_debian()
else()
  tandem_stage_archive()
endif()
