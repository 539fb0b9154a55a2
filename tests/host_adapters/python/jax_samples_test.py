"""samples/python/jax_gpt.py: three lines more than its plain twin, whose losses it follows."""
import pytest

from samples_test import FOLDER, changed_lines, losses, run


def test_three_lines_bring_fp8():
    plain, fp8 = ((FOLDER / part / "jax_gpt.py").read_text().splitlines() for part in ("plain", "."))
    assert 1 <= changed_lines(plain, fp8) <= 3
    assert not any("octavo" in line for line in plain)


def test_both_versions_train(tmp_path):
    """One batch's loss is noise: with five seeds of the data, the printed losses of 200 steps are 0.75 % apart in root mean
    square, up to 2.0 %, with either sign, and their means over 100 steps up to 0.6 %. A mean of three whose noise were the same
    in each would be 0.75 % apart; 3 % is four times that."""
    plain, fp8 = (losses(run(FOLDER / part / "jax_gpt.py", tmp_path, steps=60))
                  for part in ("plain", "."))
    assert len(plain) == len(fp8) == 4 and fp8 != plain
    assert fp8[-1] < 0.6 * fp8[0]
    assert sum(fp8[1:]) == pytest.approx(sum(plain[1:]), rel=0.03)
