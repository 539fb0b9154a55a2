"""The host and the plugin of tests/package/run.cmake, built against the package of Conan and run."""
import pathlib
import shlex

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMakeDeps, CMakeToolchain, cmake_layout

PROJECTS = {"consumer": "tests/package/consumer", "plugin": "samples/minimal_plugin"}


class Consumer(ConanFile):
    settings = "os", "arch", "compiler", "build_type"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        CMakeDeps(self).generate()
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False
        toolchain.generate()

    def execute(self, *words, env="conanbuild"):
        self.run(shlex.join(map(str, words)), env=env)

    def build(self):
        root = pathlib.Path(self.recipe_folder).parents[3]
        toolchain = pathlib.Path(self.generators_folder, "conan_toolchain.cmake")
        for name, source in PROJECTS.items():
            folder = pathlib.Path(self.build_folder, name)
            self.execute("cmake", "-S", root / source, "-B", folder, f"-DCMAKE_TOOLCHAIN_FILE={toolchain}",
                         f"-DCMAKE_BUILD_TYPE={self.settings.build_type}")
            self.execute("cmake", "--build", folder)

    def test(self):
        if not can_run(self):
            self.output.warning("not run: this machine does not run programs of the package's processor")
            return
        plugins = pathlib.Path(self.build_folder, "plugin/lib/octavo/plugins")
        self.execute("octavo", "plugin", "list", env="conanrun")
        self.execute("env", f"OCTAVO_PLUGIN_PATH={plugins}", pathlib.Path(self.build_folder, "consumer/consumer"), env="conanrun")
