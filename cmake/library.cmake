# The one library that is installed, made of the objects of the rooms: libtiercel.a and
# libtiercel.so, both as tiercel::tiercel (cmake/tiercel-config.cmake.in chooses). In this tree
# tiercel::tiercel is the shared one if BUILD_SHARED_LIBS is set, else the static one.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# tiercel_library(room…)
function(tiercel_library)
  set(objects "")
  set(libraries "")
  foreach(room IN LISTS ARGN)
    get_target_property(type tiercel_${room} TYPE)
    if(NOT type STREQUAL "INTERFACE_LIBRARY")
      list(APPEND objects $<TARGET_OBJECTS:tiercel_${room}>)
    endif()
    get_property(private GLOBAL PROPERTY tiercel_private_${room})
    list(APPEND libraries ${private})
  endforeach()
  list(REMOVE_DUPLICATES libraries)
  foreach(kind static shared)
    string(TOUPPER ${kind} type)
    add_library(tiercel_${kind} ${type} ${objects})
    # Until 1.0 every minor version may change the binary interface.
    set_target_properties(tiercel_${kind} PROPERTIES OUTPUT_NAME tiercel EXPORT_NAME tiercel
      LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION}
      SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
    target_compile_features(tiercel_${kind} PUBLIC cxx_std_20)
    target_include_directories(tiercel_${kind} PUBLIC
      $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
      $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_link_libraries(tiercel_${kind} PUBLIC tl::expected PRIVATE ${libraries})
    install(TARGETS tiercel_${kind} EXPORT tiercel-${kind}
      ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(EXPORT tiercel-${kind} NAMESPACE tiercel:: FILE tiercel-${kind}-targets.cmake
      DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tiercel)
  endforeach()
  if(BUILD_SHARED_LIBS)
    add_library(tiercel::tiercel ALIAS tiercel_shared)
  else()
    add_library(tiercel::tiercel ALIAS tiercel_static)
  endif()

  # What a static library leaves for its user to find.
  set(tiercel_store_modules "")
  get_property(modules GLOBAL PROPERTY tiercel_store_modules)
  foreach(module IN LISTS modules)
    string(MAKE_C_IDENTIFIER "store_${module}" prefix)
    string(APPEND tiercel_store_modules
      "  pkg_check_modules(${prefix} REQUIRED QUIET IMPORTED_TARGET ${module})\n")
  endforeach()
  configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/tiercel-config.cmake.in
    ${CMAKE_BINARY_DIR}/generated/tiercel-config.cmake
    INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tiercel
    NO_SET_AND_CHECK_MACRO)
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/generated/tiercel-config-version.cmake
    COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/generated/tiercel-config.cmake
    ${CMAKE_BINARY_DIR}/generated/tiercel-config-version.cmake
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tiercel)
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/tiercel
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
endfunction()
