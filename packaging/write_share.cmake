# Writes TANDEM_SHARE, the folder share of an installation, and TANDEM_UNIT, the systemd unit, by TANDEM_PROGRAM. Part of
# `cmake --install`: CMAKE_INSTALL_PREFIX is where the program will lie.
function(tandem_write_by_program file)
  get_filename_component(folder ${file} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  execute_process(COMMAND ${TANDEM_PROGRAM} ${ARGN} OUTPUT_FILE ${file} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

set(TANDEM_PREFIX ${CMAKE_INSTALL_PREFIX})
file(REMOVE_RECURSE ${TANDEM_SHARE})
# Debian's zsh reads a folder of its own below /usr.
set(zsh zsh/site-functions)
if(TANDEM_PREFIX STREQUAL "/usr" AND EXISTS /etc/debian_version)
  set(zsh zsh/vendor-completions)
endif()
tandem_write_by_program(${TANDEM_SHARE}/bash-completion/completions/tandem completion bash)
tandem_write_by_program(${TANDEM_SHARE}/${zsh}/_tandem completion zsh)
tandem_write_by_program(${TANDEM_SHARE}/man/man1/tandem.1 manual)
execute_process(COMMAND gzip -9nf ${TANDEM_SHARE}/man/man1/tandem.1 COMMAND_ERROR_IS_FATAL ANY)

# What `tandem serve` takes without a model: apps/tandem/default_model.cc looks for it here.
file(COPY ${TANDEM_SOURCE}/models/tandem-tiny DESTINATION ${TANDEM_SHARE}/tandem/models)

file(COPY ${TANDEM_SOURCE}/packaging/grafana.json ${TANDEM_SOURCE}/packaging/alerts.yaml ${TANDEM_SOURCE}/packaging/tandem.yaml
     DESTINATION ${TANDEM_SHARE}/tandem)
configure_file(${TANDEM_SOURCE}/packaging/tandem.env.in ${TANDEM_SHARE}/tandem/tandem.env @ONLY)
configure_file(${TANDEM_SOURCE}/packaging/tandem.service.in ${TANDEM_UNIT} @ONLY)
# All pages for users: they refer to each other, and help and errors of the program to them.
file(GLOB pages ${TANDEM_SOURCE}/docs/*.md)
file(COPY ${TANDEM_SOURCE}/CHANGELOG.md ${pages} DESTINATION ${TANDEM_SHARE}/doc/tandem-serve)
file(GLOB_RECURSE files ${TANDEM_SHARE}/*)
file(CHMOD ${files} PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
