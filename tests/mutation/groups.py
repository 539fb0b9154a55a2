"""The groups of sources that are mutated, and the GoogleTest programs that must notice."""
import dataclasses
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass
class Group:
    name: str
    sources: str  # a pattern below sdk/src
    own: str  # a filter of GoogleTest: the suites that mirror these sources, which run first
    programs: list  # all their other cases follow
    never: str = ""  # cases that repeat for minutes what others do in seconds
    also: tuple = ()  # at last, (program, filter): suites of other programs that call these sources

    def files(self):
        return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "sdk/src").glob(self.sources))

    def runs(self):
        """(program, filter) in the order in which they run: what most likely notices comes first."""
        own = self.own + (f"-{self.never}" if self.never else "")
        others = f"-{self.own}" + (f":{self.never}" if self.never else "")
        runs = [(program, cases) for cases in (own, others) for program in self.programs]
        return runs + list(self.also)

    def targets(self):
        return sorted({program for program, _ in self.runs()})


GROUPS = [
    Group("trust", "trust/*.cpp", "Trust*:Lock*:Signature*", ["octavo_sdk_internal_test", "octavo_sdk_test"]),
    Group("elf", "plugin/elf*.cpp", "Elf*", ["octavo_sdk_internal_test", "octavo_sdk_test"]),
    Group("negotiate", "negotiate/*.cpp", "Negotiate*:Reasons*:MinGain*:AskBackend*:CheckOptions*",
          ["octavo_sdk_test", "octavo_sdk_internal_test"],
          also=(("octavo_zoo_test", "ZooSetup*"), ("octavo_cli_test", "CliLock*:CliExplain*"))),
    Group("checkpoint", "checkpoint/*.cpp", "Checkpoint*",
          ["octavo_sdk_internal_test", "octavo_sdk_ranks_test", "octavo_sdk_checkpoint_test"],
          "CheckpointFlipsTest.as_many*"),
]
