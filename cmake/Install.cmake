# Rules for cmake --install and find_package(eddy CONFIG).
include(CMakePackageConfigHelpers)

install(TARGETS eddy eddy_specs EXPORT eddyTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
set(targets eddyTargets)
if(EDDY_BUILD_TRAIN)
  list(APPEND targets eddyTrainTargets)
  install(TARGETS eddy_train eddy_commands EXPORT eddyTrainTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(TARGETS eddy_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  foreach(place bash:bash-completion/completions/eddy zsh:zsh/site-functions/_eddy)
    string(REGEX REPLACE ":.*" "" shell ${place})
    string(REGEX REPLACE ".*:" "" file ${place})
    set(script ${PROJECT_BINARY_DIR}/completion/${file})
    cmake_path(GET script PARENT_PATH folder)
    install(CODE "
      file(MAKE_DIRECTORY \"${folder}\")
      execute_process(COMMAND \"$<TARGET_FILE:eddy_program>\" completion ${shell} OUTPUT_FILE \"${script}\"
        COMMAND_ERROR_IS_FATAL ANY)")
    cmake_path(GET file PARENT_PATH destination)
    install(FILES ${script} DESTINATION ${CMAKE_INSTALL_DATADIR}/${destination})
  endforeach()
endif()
# The exercises of `eddy learn`, and what a user reads and trains, as it lies in examples/; `eddy info` names the folder.
if(EDDY_BUILD_TRAIN)
  install(DIRECTORY examples/learn DESTINATION ${CMAKE_INSTALL_DATADIR}/eddy)
  install(DIRECTORY examples/ DESTINATION ${CMAKE_INSTALL_DATADIR}/eddy FILES_MATCHING PATTERN "*.cpp" PATTERN "*.toml"
    PATTERN browser EXCLUDE PATTERN kernels EXCLUDE PATTERN learn EXCLUDE PATTERN slurm EXCLUDE)
endif()
foreach(folder tensor autograd ops models train)
  install(DIRECTORY ${folder}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/eddy/${folder} FILES_MATCHING PATTERN "*.h")
endforeach()
install(FILES models/eddy/eddy.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/eddy)
install(FILES ${PROJECT_BINARY_DIR}/include/models/eddy/families.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/eddy/models/eddy)
foreach(export ${targets})
  install(EXPORT ${export} NAMESPACE eddy:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/eddy)
endforeach()
configure_package_config_file(cmake/eddyConfig.cmake.in ${PROJECT_BINARY_DIR}/eddyConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/eddy)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/eddyConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/eddyConfig.cmake ${PROJECT_BINARY_DIR}/eddyConfigVersion.cmake
  ${CMAKE_CURRENT_SOURCE_DIR}/cmake/FindSentencePiece.cmake ${CMAKE_CURRENT_SOURCE_DIR}/cmake/MissingParts.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/eddy)
