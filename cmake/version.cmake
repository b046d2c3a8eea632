# Writes the version of the sources, from the tags and commits of git, into OUTPUT, a C++ source, and as variables into PACKAGES, for
# packages, if they have changed. Run at every build:
# cmake -DSOURCE=FOLDER -DRELEASE=X.Y.Z -DOUTPUT=FILE -DPACKAGES=FILE -P version.cmake
#
# RELEASE is the version that these sources become, as CMakeLists.txt has it. N counts commits since the last tag vX.Y.Z, or all.
#   where the sources are           program      Debian                     Python
#   at the tag v0.1.0               0.1.0        0.1.0                      0.1.0
#   38 commits after it             0.1.0+38     0.1.0+38.g0123456789ab     0.1.0.post38+g0123456789ab
#   RELEASE is 0.2.0, not tagged    0.2.0-dev.38 0.2.0~dev38.g0123456789ab  0.2.0.dev38+g0123456789ab
# Changes that are not committed add "-changed" to the program's commit and ".changed" to both others. Without git: RELEASE alone.
function(tandem_git variable)
  execute_process(COMMAND git -C ${SOURCE} ${ARGN} OUTPUT_VARIABLE output OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
                  RESULT_VARIABLE failed)
  if(failed)
    set(output "")
  endif()
  set(${variable} "${output}" PARENT_SCOPE)
endfunction()

tandem_git(date log -1 --format=%cD)
tandem_git(commit rev-parse --short=12 HEAD)
set(version ${RELEASE})
set(debian ${RELEASE})
set(python ${RELEASE})
if(commit)
  tandem_git(changes status --porcelain --untracked-files=no)
  tandem_git(described describe --tags --long --match "v[0-9]*.[0-9]*.[0-9]*")
  set(tag "")
  if(described MATCHES "^v([0-9]+\\.[0-9]+\\.[0-9]+)-([0-9]+)-g[0-9a-f]+$")
    set(tag ${CMAKE_MATCH_1})
    set(distance ${CMAKE_MATCH_2})
  else()
    tandem_git(distance rev-list --count HEAD)
  endif()
  set(rest "g${commit}")
  if(changes)
    string(APPEND rest ".changed")
    string(APPEND commit "-changed")
  endif()
  if(tag AND NOT tag VERSION_LESS RELEASE)
    set(version ${tag})
    set(debian ${tag})
    set(python ${tag})
    if(distance GREATER 0)
      string(APPEND version "+${distance}")
      string(APPEND debian "+${distance}.${rest}")
      string(APPEND python ".post${distance}+${rest}")
    elseif(changes)
      string(APPEND debian "+${rest}")
      string(APPEND python "+${rest}")
    endif()
  else()
    string(APPEND version "-dev.${distance}")
    string(APPEND debian "~dev${distance}.${rest}")
    string(APPEND python ".dev${distance}+${rest}")
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT "#include \"version.h\"
namespace tandem {
const char* const kVersion = \"${version}\";
const char* const kCommit = \"${commit}\";
}
")
file(CONFIGURE OUTPUT ${PACKAGES} @ONLY CONTENT "set(TANDEM_VERSION \"${version}\")
set(TANDEM_VERSION_DEBIAN \"${debian}\")
set(TANDEM_VERSION_PYTHON \"${python}\")
set(TANDEM_DATE \"${date}\")
")
