# SPDX-License-Identifier: Apache-2.0
# aot_add_model(<target> <model> [NAME <name>] [OPT speed|balanced|size|ram] [ORACLE litert|tflm] [CPU <core>]
#               [WORKSPACE_SECTION <section>])
#
# Adds a model to <target>, usually `app`, in the application's CMakeLists.txt after find_package(Zephyr).
#
# <model> is a .tflite file, which is compiled at build time by the Python that Zephyr uses, with the packages that aot
# depends on; or a folder that `aot compile` wrote, which needs no Python package.
#
# The sources become part of <target>. A library made here by zephyr_library() would never be linked, because Zephyr closes its
# list of libraries before find_package(Zephyr) returns.
include_guard(GLOBAL)

set(AOT_ROOT ${CMAKE_CURRENT_LIST_DIR}/../.. CACHE INTERNAL "the module's folder")

function(aot_add_model target model)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "NAME;OPT;ORACLE;CPU;WORKSPACE_SECTION" "")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "aot_add_model: unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT CONFIG_AOT)
    message(FATAL_ERROR "aot_add_model: put CONFIG_AOT=y into prj.conf")
  endif()
  if(NOT TARGET ${target})
    message(FATAL_ERROR "aot_add_model: target ${target} does not exist; call aot_add_model(app ...) after find_package(Zephyr)")
  endif()
  get_filename_component(model ${model} ABSOLUTE BASE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
  if(NOT EXISTS ${model})
    message(FATAL_ERROR "aot_add_model: ${model} does not exist")
  endif()

  if(IS_DIRECTORY ${model})
    _aot_name_of_folder(name ${model} "${arg_NAME}")
    if(arg_OPT OR arg_ORACLE OR arg_CPU)
      message(FATAL_ERROR "aot_add_model: OPT, ORACLE and CPU are for .tflite files; ${model} is already compiled")
    endif()
    set(folder ${model})
  else()
    if(arg_NAME)
      set(name ${arg_NAME})
    else()
      get_filename_component(name ${model} NAME_WE)
      string(MAKE_C_IDENTIFIER ${name} name)
      string(TOLOWER ${name} name)
    endif()
    set(folder ${CMAKE_CURRENT_BINARY_DIR}/aot/${name})
    _aot_compile(${target} ${folder} ${model} ${name} "${arg_OPT}" "${arg_ORACLE}" "${arg_CPU}")
  endif()

  set(sources ${folder}/${name}.c ${folder}/${name}_kernels.c ${folder}/${name}_params.c)
  target_sources(${target} PRIVATE ${sources})
  target_include_directories(${target} PRIVATE ${folder} ${AOT_ROOT}/crt/include)
  separate_arguments(kernel_flags UNIX_COMMAND "${CONFIG_AOT_KERNEL_FLAGS}")
  set_property(SOURCE ${folder}/${name}_kernels.c TARGET_DIRECTORY ${target} APPEND PROPERTY COMPILE_OPTIONS ${kernel_flags})
  if(arg_WORKSPACE_SECTION)
    set_property(SOURCE ${folder}/${name}.c TARGET_DIRECTORY ${target} APPEND PROPERTY
      COMPILE_DEFINITIONS "AOT_WORKSPACE_SECTION=\"${arg_WORKSPACE_SECTION}\"")
  endif()
endfunction()

# The name of the model in a folder that `aot compile` wrote.
function(_aot_name_of_folder result folder wanted)
  if(NOT EXISTS ${folder}/metadata.json)
    message(FATAL_ERROR "aot_add_model: ${folder} was not written by aot compile (it has no metadata.json)")
  endif()
  file(READ ${folder}/metadata.json metadata)
  string(JSON name ERROR_VARIABLE failed GET "${metadata}" name)
  if(failed)
    message(FATAL_ERROR "aot_add_model: ${folder}/metadata.json: ${failed}")
  endif()
  if(wanted AND NOT wanted STREQUAL name)
    message(FATAL_ERROR "aot_add_model: ${folder} holds ${name}, not ${wanted}; aot compile --name chooses the name")
  endif()
  set(${result} ${name} PARENT_SCOPE)
endfunction()

# aot's name of the core that Zephyr builds for.  aot may use only what Zephyr lets the compiler use: without CONFIG_FPU there
# are no vector or floating point registers, and an Armv8-M core may lack the DSP instructions.
function(_aot_cpu result)
  set(name "")
  foreach(cpu M0 M0PLUS M3 M4 M7)
    if(CONFIG_CPU_CORTEX_${cpu})
      string(TOLOWER cortex-${cpu} name)
    endif()
  endforeach()
  if(CONFIG_ARMV8_1_M_MVEI AND CONFIG_FPU)
    set(name cortex-m55)
  elseif(CONFIG_ARMV8_M_MAINLINE AND CONFIG_ARMV8_M_DSP)
    set(name cortex-m33)
  elseif(CONFIG_ARMV8_M_MAINLINE)
    set(name cortex-m3)
  elseif(CONFIG_ARMV8_M_BASELINE)
    set(name cortex-m0plus)
  endif()
  if(NOT name)
    message(FATAL_ERROR "aot_add_model: aot has no target for this board's core; choose one with CPU (aot targets)")
  endif()
  if(NOT CONFIG_FPU AND name MATCHES "m4$|m7$|m33$")
    string(APPEND name "+nofpu")
  endif()
  set(${result} ${name} PARENT_SCOPE)
endfunction()

function(_aot_compile target folder model name opt oracle cpu)
  if(NOT cpu)
    _aot_cpu(cpu)
  endif()
  if(NOT PYTHON_EXECUTABLE)
    set(PYTHON_EXECUTABLE ${Python3_EXECUTABLE})
  endif()
  set(aot ${CMAKE_COMMAND} -E env PYTHONPATH=${AOT_ROOT} ${PYTHON_EXECUTABLE} -m aot)
  execute_process(COMMAND ${aot} --version OUTPUT_QUIET ERROR_VARIABLE reason RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "aot_add_model: ${PYTHON_EXECUTABLE} cannot run aot:\n${reason}\n"
      "Install it for this Python (pip install ${AOT_ROOT}), or pass a folder that `aot compile` wrote.")
  endif()
  set(arguments --name ${name} --target ${cpu} -o ${folder} --force -q)
  if(opt)
    list(APPEND arguments --opt ${opt})
  endif()
  if(oracle)
    list(APPEND arguments --oracle ${oracle})
  endif()
  file(GLOB_RECURSE compiler ${AOT_ROOT}/aot/*.py ${AOT_ROOT}/aot/*.j2)
  add_custom_command(
    OUTPUT ${folder}/${name}.c ${folder}/${name}_kernels.c ${folder}/${name}_params.c ${folder}/${name}.h
    COMMAND ${aot} compile ${model} ${arguments}
    DEPENDS ${model} ${compiler}
    COMMENT "Compiling ${name} for ${cpu}"
    VERBATIM)
  # Other sources include the header: generate it before any source of the target is compiled.
  add_custom_target(aot_${name} DEPENDS ${folder}/${name}.h)
  add_dependencies(${target} aot_${name})
endfunction()
