"""Octavo for Conan 2: liboctavo, the program, the headers and the plugins of this tree, built from a checkout.

  conan create sdk/packaging/conan

The libraries that Octavo needs are those of the system, by the names of Debian. find_package(octavo) finds the files of
CMake that Octavo installs, so the targets are those of every other installation: octavo::sdk and octavo::abi.
"""
import pathlib
import re

from conan import ConanFile
from conan.errors import ConanException, ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy
from conan.tools.system import package_manager

# What the build reads, and what it installs as it is.
SOURCES = ("CMakeLists.txt", "CHANGELOG.md", "LICENSE", "README.md", "docs/*", "host_adapters/*", "kernels/*", "plugins/*",
           "samples/*", "sdk/*")
ARCHITECTURES = ("armv8", "x86_64")


class Octavo(ConanFile):
    name = "octavo"
    description = "FP8 training for existing frameworks, as plugins behind one C ABI"
    license = "Apache-2.0"
    package_type = "shared-library"
    settings = "os", "arch", "compiler", "build_type"

    def set_version(self):
        header = pathlib.Path(self.recipe_folder, "../../include/octavo/abi.h")
        if not header.is_file():
            raise ConanException(f"expected the recipe in sdk/packaging/conan of a checkout of Octavo, found no {header}")
        self.version = ".".join(re.search(rf"define OCTAVO_VERSION_{part} (\d+)", header.read_text())[1]
                                for part in ("MAJOR", "MINOR", "PATCH"))

    def export_sources(self):
        root = pathlib.Path(self.recipe_folder).parents[2]
        for pattern in SOURCES:
            copy(self, pattern, src=root, dst=self.export_sources_folder,
                 excludes=("*/__pycache__/*", "*/target/*", "*/test_package/build/*"))

    def configure(self):
        # liboctavo is a C ABI: neither the standard nor the C++ library of who uses it matters.
        self.settings.rm_safe("compiler.cppstd")
        self.settings.rm_safe("compiler.libcxx")

    def validate(self):
        if self.settings.os != "Linux" or str(self.settings.arch) not in ARCHITECTURES:
            raise ConanInvalidConfiguration(f"Octavo runs on Linux, on {' or '.join(ARCHITECTURES)}; "
                                            f"found {self.settings.os}, {self.settings.arch}")

    def layout(self):
        cmake_layout(self)

    def system_requirements(self):
        package_manager.Apt(self).install(["libboost-dev", "libtomlplusplus-dev", "libcli11-dev", "nlohmann-json3-dev",
                                           "libsodium-dev", "libxxhash-dev", "libyaml-cpp-dev"])

    def generate(self):
        toolchain = CMakeToolchain(self)
        # The compiler builds for the processor of the profile, and files go where every installation has them.
        toolchain.blocks.remove("arch_flags", "output_dirs")
        toolchain.cache_variables.update({
            "CMAKE_INSTALL_LIBDIR": "lib", "CMAKE_DISABLE_FIND_PACKAGE_MPI": True, "OCTAVO_BUILD_TESTS": False,
            "OCTAVO_BUILD_SAMPLES": False})
        toolchain.user_presets_path = False  # none in a checkout
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", src=self.source_folder, dst=pathlib.Path(self.package_folder, "licenses"))

    def package_info(self):
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["lib/cmake/octavo"]
        self.cpp_info.libs = ["octavo"]
        self.runenv_info.prepend_path("PATH", str(pathlib.Path(self.package_folder, "bin")))
