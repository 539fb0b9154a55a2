"""What a goal gives back, and whether that is what was wanted."""
import dataclasses
import math
import typing


class NotMeasured(Exception):
    """A goal cannot be measured here; its text is the reason."""


@dataclasses.dataclass
class Result:
    value: float
    details: list
    wrong: str = ""  # why the goal is missed whatever the value is


@dataclasses.dataclass
class Goal:
    name: str
    what: str
    wanted: float
    moonshot: float
    measure: typing.Callable
    less: bool = False  # less is better

    def is_met(self, result):
        better = result.value <= self.wanted if self.less else result.value >= self.wanted
        return better and not result.wrong


def mean(ratios):
    return math.exp(sum(math.log(r) for r in ratios) / len(ratios))
