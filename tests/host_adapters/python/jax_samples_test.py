"""samples/python/jax_gpt.py: three lines more than its plain twin, and 200 steps end within 2 % of it."""
import pytest

from samples_test import FOLDER, changed_lines, losses, run


def test_three_lines_bring_fp8():
    plain, fp8 = ((FOLDER / part / "jax_gpt.py").read_text().splitlines() for part in ("plain", "."))
    assert 1 <= changed_lines(plain, fp8) <= 3
    assert not any("octavo" in line for line in plain)


def test_both_versions_train(tmp_path):
    plain, fp8 = (losses(run(FOLDER / part / "jax_gpt.py", tmp_path, steps=200))
                  for part in ("plain", "."))
    assert len(plain) == len(fp8) == 11 and fp8 != plain
    assert fp8[-1] < 0.6 * fp8[0]
    assert fp8[-1] == pytest.approx(plain[-1], rel=0.02)
