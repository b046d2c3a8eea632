# Writes PAGE, an HTML file, as the C++ source OUTPUT (see src/api/page.h). The style sheets and scripts beside it that it links become
# part of it: cmake -DPAGE=... -DOUTPUT=... -P embed_page.cmake
file(READ ${PAGE} html)
get_filename_component(folder ${PAGE} DIRECTORY)

# embed(PATTERN TAG): each match of PATTERN, whose group is a file's name, becomes <TAG>text of the file</TAG>.
function(embed pattern tag)
  while(html MATCHES "${pattern}")
    set(link "${CMAKE_MATCH_0}")
    file(READ ${folder}/${CMAKE_MATCH_1} text)
    if(text MATCHES "</${tag}")
      message(FATAL_ERROR "${CMAKE_MATCH_1} holds </${tag}, which would end its part of the page")
    endif()
    string(REPLACE "${link}" "<${tag}>${text}</${tag}>" html "${html}")
  endwhile()
  set(html "${html}" PARENT_SCOPE)
endfunction()
embed("<link rel=\"stylesheet\" href=\"([a-z]+\\.css)\">" style)
embed("<script src=\"([a-z]+\\.js)\"></script>" script)

if(html MATCHES "\\)page\"")
  message(FATAL_ERROR "the page holds the end of the literal that it becomes")
endif()
file(WRITE ${OUTPUT} "#include \"api/page.h\"\nnamespace tandem::api {\nconst std::string_view kPageHtml = R\"page(${html})page\";\n}\n")
