"""A fixed slice of the comparisons with other implementations; tests/differential has the programs for longer runs."""
import os
import pathlib
import random
import sys

import pytest
from conftest import BINARY, ROOT, SHARED

sys.path.insert(0, str(ROOT / "tests" / "differential"))

import compare_templates  # noqa: E402
import compare_tokenizers  # noqa: E402
from driver import Driver  # noqa: E402


@pytest.fixture(scope="module")
def driver():
    path = pathlib.Path(os.environ.get("TANDEM_TEXT_DRIVER") or BINARY.with_name("text_driver"))
    if not path.is_file():
        pytest.fail(f"{path} is missing; build it (cmake --build --preset dev --target text_driver)", pytrace=False)
    with Driver(path) as driver:
        yield driver


@pytest.fixture(scope="module")
def vocabularies():
    folder = SHARED / "tokenizers"
    if not folder.is_dir():
        message = f"{folder} is missing; set TANDEM_SHARED"
        if os.environ.get("CI") == "true":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    return folder


@pytest.mark.parametrize("expressions, count", [(True, 800), (False, 60)], ids=["expressions", "templates"])
def test_templates_render_as_with_jinja2(driver, expressions, count):
    different = []
    found = compare_templates.compare(driver, 1_000_000, count, lambda *one: different.append(one), expressions)
    assert not different, different[0]
    assert found["the same text"] > count // 4, found


def test_texts_are_tokenized_as_by_the_reference_packages(driver, vocabularies, tmp_path):
    different = []
    names = set()
    for case in compare_tokenizers.cases(vocabularies, tmp_path, most=5000):
        names.add(case[0])
        compare_tokenizers.compare(driver, case, random.Random(1), 25, lambda *one: different.append(one))
    assert not different, different[0]
    assert len(names) > 20
