"""What a study cannot go on from: what was expected, what was found, where, and what to do."""


class StudyError(Exception):
    def __init__(self, where, expected, found, remedy):
        super().__init__(f"{where}: expected {expected}, found {found}. {remedy}")


def expect(fine, where, expected, found, remedy):
    if not fine:
        raise StudyError(where, expected, found, remedy)
