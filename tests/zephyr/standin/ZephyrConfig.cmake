# Stands in for Zephyr's package: module glue check, no Zephyr. See README.md in this folder.
# Variables: EXTRA_ZEPHYR_MODULES (one module), STANDIN_RUNTIME (the folder crt of this project), STANDIN_SCRIPT (linker script).
set(STANDIN ${CMAKE_CURRENT_LIST_DIR})
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR arm)
set(CMAKE_C_COMPILER arm-none-eabi-gcc)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
project(Zephyr-Kernel C)
find_package(Python3 REQUIRED)
set(PYTHON_EXECUTABLE ${Python3_EXECUTABLE})

set(configuration ${CMAKE_SOURCE_DIR}/prj.conf ${EXTRA_CONF_FILE})
execute_process(
  COMMAND ${PYTHON_EXECUTABLE} ${STANDIN}/module.py ${EXTRA_ZEPHYR_MODULES} "${configuration}" ${CMAKE_BINARY_DIR}
  RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "module glue check failed")
endif()
include(${CMAKE_BINARY_DIR}/config.cmake)

add_library(zephyr_interface INTERFACE)
target_compile_options(zephyr_interface INTERFACE -mcpu=cortex-m3 -mthumb -Os -std=c99 -ffreestanding -fno-strict-aliasing
  -ffunction-sections -fdata-sections -fno-common -Wall -Wextra -Wpointer-arith -Werror -imacros ${CMAKE_BINARY_DIR}/autoconf.h)
target_include_directories(zephyr_interface INTERFACE ${STANDIN}/include ${STANDIN_RUNTIME}/include)
add_custom_target(zephyr_generated_headers)

# What a module may call, and only until find_package returns.
macro(zephyr_library_named name)
  get_property(closed GLOBAL PROPERTY STANDIN_CLOSED)
  if(closed)
    message(FATAL_ERROR "zephyr_library_named(${name}) after find_package(Zephyr): Zephyr would never link it")
  endif()
  set(ZEPHYR_CURRENT_LIBRARY ${name})
  add_library(${name} STATIC)
  target_link_libraries(${name} PUBLIC zephyr_interface)
  set_property(GLOBAL APPEND PROPERTY STANDIN_LIBRARIES ${name})
endmacro()
macro(zephyr_library)
  zephyr_library_named(library_of_${CMAKE_CURRENT_SOURCE_DIR})
endmacro()
function(zephyr_library_sources)
  target_sources(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGV})
endfunction()
function(zephyr_library_compile_options)
  target_compile_options(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGV})
endfunction()
function(zephyr_include_directories)
  foreach(folder ${ARGV})
    get_filename_component(folder ${folder} ABSOLUTE)
    if(NOT IS_DIRECTORY ${folder})
      message(FATAL_ERROR "zephyr_include_directories: there is no ${folder}")
    endif()
    target_include_directories(zephyr_interface INTERFACE ${folder})
  endforeach()
endfunction()

add_subdirectory(${MODULE_CMAKE} ${CMAKE_BINARY_DIR}/modules/checked)

add_library(app STATIC)
target_link_libraries(app PUBLIC zephyr_interface)
add_dependencies(app zephyr_generated_headers)

get_property(libraries GLOBAL PROPERTY STANDIN_LIBRARIES)
set_property(GLOBAL PROPERTY STANDIN_CLOSED TRUE)
add_executable(zephyr.elf ${STANDIN}/kernel.c ${STANDIN_RUNTIME}/src/startup.c ${STANDIN_RUNTIME}/src/semihosting.c
  ${STANDIN_RUNTIME}/src/systick.c ${STANDIN_RUNTIME}/src/memory.c)
target_compile_definitions(zephyr.elf PRIVATE AOT_TICK_NUM=40u AOT_TICK_DEN=1u)
set_source_files_properties(${STANDIN_RUNTIME}/src/memory.c PROPERTIES COMPILE_OPTIONS -fno-tree-loop-distribute-patterns)
target_link_libraries(zephyr.elf PRIVATE -nostdlib -mcpu=cortex-m3 -mthumb -Wl,--gc-sections -T${STANDIN_SCRIPT}
  -Wl,--whole-archive app ${libraries} -Wl,--no-whole-archive zephyr_interface -lgcc)
